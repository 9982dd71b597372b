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
    if (body.signIn) {
      location.assign("sign-in");
    }
    throw new Error(body.error || response.statusText);
  }
  return response.json();
}

// useAnswer reads an answer, and reads it again when tick changes. The last answer of the same path stays while the next one is read.
export function useAnswer(path, tick) {
  const [state, setState] = useState({});
  const read = useRef(() => {});
  useEffect(() => {
    const abort = new AbortController();
    let reading = false;
    let again = false;
    // A change while an answer is read leads to another read, and does not interrupt this one: it may take longer than the next change.
    read.current = () => {
      if (reading) {
        again = true;
        return;
      }
      reading = true;
      again = false;
      get(path, abort.signal).then(
        (data) => abort.signal.aborted || setState({ path, data }),
        (error) => abort.signal.aborted || setState((before) => ({ ...(before.path === path ? before : { path }), error: error.message })),
      ).finally(() => {
        reading = false;
        if (again && !abort.signal.aborted) {
          read.current();
        }
      });
    };
    setState({});
    return () => abort.abort();
  }, [path]);
  useEffect(() => read.current(), [path, tick]);
  return state.path === path ? state : {};
}

// signOut removes the token from the browser.
export async function signOut() {
  await fetch("sign-out", { method: "POST", redirect: "manual" });
  location.assign("sign-in");
}

// useChanges returns a number that grows with each change of the cluster, and whether the stream is connected. Hidden pages wait.
export function useChanges() {
  const [state, setState] = useState({ tick: 0, live: false });
  useEffect(() => {
    let source;
    const connect = () => {
      source?.close();
      if (document.hidden) {
        return; // a browser opens only six connections to one server for all tabs
      }
      source = new EventSource("api/v1/events"); // it begins with a change
      source.addEventListener("change", () => setState((s) => ({ tick: s.tick + 1, live: true })));
      source.addEventListener("end", () => location.reload()); // the token is no longer accepted
      source.addEventListener("error", () => setState((s) => ({ ...s, live: false })));
    };
    connect();
    // Ages and past usage also change without the cluster.
    const timer = setInterval(() => document.hidden || setState((s) => ({ ...s, tick: s.tick + 1 })), 60_000);
    document.addEventListener("visibilitychange", connect);
    return () => {
      clearInterval(timer);
      source?.close();
      document.removeEventListener("visibilitychange", connect);
    };
  }, []);
  return state;
}
