// The view is in the fragment of the URL, so that it can be copied: #/PATH?PARAMETERS.
import { useEffect, useState } from "preact/hooks";
import { query } from "./api.js";

function read() {
  const [path, parameters] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const parts = path.split("/").filter(Boolean).map((part) => {
    try {
      return decodeURIComponent(part);
    } catch {
      return part;
    }
  });
  return { parts, parameters: Object.fromEntries(new URLSearchParams(parameters || "")) };
}

export function useRoute() {
  const [route, setRoute] = useState(read());
  useEffect(() => {
    const changed = () => setRoute(read());
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  return route;
}

// to returns a link to a view.
export function to(parts, parameters = {}) {
  return "#/" + parts.map(encodeURIComponent).join("/") + query(parameters);
}

// replace shows another view. The browser does not go back to this one.
export function replace(parts, parameters) {
  history.replaceState(null, "", to(parts, parameters));
  dispatchEvent(new HashChangeEvent("hashchange"));
}

// select changes parameters of the current view. Another selection begins at its first page.
export function select(changes) {
  const { parts, parameters } = read();
  replace(parts, { ...parameters, offset: 0, ...changes });
}

// turn shows another page of the current view. The browser can go back to this one.
export function turn(offset) {
  const { parts, parameters } = read();
  location.hash = to(parts, { ...parameters, offset });
}

export const queueLink = (name) => to(["queues", name]);
export const localQueueLink = (namespace, name) => to(["localqueues", namespace, name]);
export const jobSetLink = (namespace, name) => to(["jobsets", namespace, name]);
