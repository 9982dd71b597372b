// The answers of the server, and the stream that reports changes.
import { useEffect, useRef, useState } from "preact/hooks";

// query returns the part of a URL with the parameters that are not empty.
export function query(parameters) {
  const set = Object.entries(parameters).filter(([, value]) => value !== "" && value !== undefined && value !== 0 && value !== "0");
  return set.length ? "?" + new URLSearchParams(set) : "";
}

export async function get(path, signal) {
  const response = await fetch("api/v1/" + path, { signal, headers: { Accept: "application/json" } });
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new Error(body.error || response.statusText);
  }
  return response.json();
}

// useAnswer reads an answer, and reads it again when tick changes. The last answer of the same path stays while the next one is read.
export function useAnswer(path, tick) {
  const [state, setState] = useState({});
  const last = useRef("");
  useEffect(() => {
    const abort = new AbortController();
    if (last.current !== path) {
      last.current = path;
      setState({});
    }
    get(path, abort.signal).then(
      (data) => abort.signal.aborted || setState({ path, data }),
      (error) => abort.signal.aborted || setState((before) => ({ ...(before.path === path ? before : { path }), error: error.message })),
    );
    return () => abort.abort();
  }, [path, tick]);
  return state.path === path ? state : {};
}

// useChanges returns a number that grows with each change of the cluster, and whether the stream is connected. Hidden pages wait.
export function useChanges() {
  const [state, setState] = useState({ tick: 0, live: false });
  useEffect(() => {
    let missed = false;
    const source = new EventSource("api/v1/events");
    const next = () => setState((s) => ({ tick: s.tick + 1, live: true }));
    source.addEventListener("change", () => {
      if (document.hidden) {
        missed = true;
        return;
      }
      next();
    });
    source.addEventListener("error", () => setState((s) => ({ ...s, live: false })));
    const seen = () => {
      if (!document.hidden && missed) {
        missed = false;
        next();
      }
    };
    document.addEventListener("visibilitychange", seen);
    return () => {
      source.close();
      document.removeEventListener("visibilitychange", seen);
    };
  }, []);
  return state;
}
