// The search for objects by a part of their names.
import { useEffect, useRef, useState } from "preact/hooks";
import { get, query } from "./api.js";
import { jobSetLink, localQueueLink, queueLink, to } from "./route.js";

function linkOf(found) {
  switch (found.kind) {
    case "Cohort":
      return to(["queues"], { under: found.name });
    case "ClusterQueue":
      return queueLink(found.name);
    case "LocalQueue":
      return localQueueLink(found.namespace, found.name);
    default:
      return jobSetLink(found.namespace, found.name);
  }
}

export function Search() {
  const [text, setText] = useState("");
  const [found, setFound] = useState(null);
  const [at, setAt] = useState(-1);
  const input = useRef(null);
  useEffect(() => {
    if (!text) {
      setFound(null);
      return undefined;
    }
    const abort = new AbortController();
    const timer = setTimeout(() => {
      get("search" + query({ text }), abort.signal).then((answer) => {
        setFound(answer.items);
        setAt(-1);
      }, () => setFound(null));
    }, 150);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [text]);
  useEffect(() => {
    const key = (e) => {
      if (e.key === "/" && !e.ctrlKey && !e.metaKey && !e.altKey && !/^(INPUT|SELECT|TEXTAREA)$/.test(document.activeElement.tagName)) {
        e.preventDefault();
        input.current.focus();
      }
    };
    addEventListener("keydown", key);
    return () => removeEventListener("keydown", key);
  }, []);
  const open = (result) => {
    setText("");
    setFound(null);
    input.current.blur();
    location.hash = linkOf(result);
  };
  const key = (e) => {
    if (e.key === "Escape") {
      setText("");
    } else if (found && found.length && (e.key === "ArrowDown" || e.key === "ArrowUp")) {
      e.preventDefault();
      setAt((at + (e.key === "ArrowDown" ? 1 : found.length - (at < 0 ? 0 : 1))) % found.length);
    } else if (found && found.length && e.key === "Enter") {
      open(found[Math.max(0, at)]);
    }
  };
  return (
    <div class="search" role="search">
      <input ref={input} id="search" type="search" placeholder="Search ( / )" aria-label="Search queues and JobSets" value={text} onInput={(e) => setText(e.currentTarget.value)}
        onKeyDown={key} role="combobox" aria-expanded={found !== null} aria-controls="found" aria-activedescendant={at >= 0 ? "found-" + at : undefined} autocomplete="off" spellcheck={false} />
      {found && (
        <ul id="found" role="listbox">
          {found.length === 0 && <li class="quiet">Nothing found</li>}
          {found.map((f, i) => (
            <li key={f.kind + "/" + f.namespace + "/" + f.name} id={"found-" + i} class="result" role="option" aria-selected={i === at} onClick={() => open(f)}>
              <span class="quiet">{f.kind}</span> {f.namespace ? f.namespace + "/" : ""}{f.name}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
