import { render } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import "uplot/dist/uPlot.min.css";
import "./style.css";
import { query, signOut, useAnswer, useChanges } from "./api.js";
import { clock, showAsOf } from "./format.js";
import { JobSet } from "./jobset.jsx";
import { JobSets } from "./jobsets.jsx";
import { LocalQueue, LocalQueues } from "./localqueues.jsx";
import { Overview } from "./overview.jsx";
import { Answered } from "./parts.jsx";
import { Queue } from "./queue.jsx";
import { Queues } from "./queues.jsx";
import { replace, to, useRoute } from "./route.js";
import { Search } from "./search.jsx";

const themes = ["system", "light", "dark"];
const views = { overview: "Overview", queues: "Queues", localqueues: "LocalQueues", jobsets: "JobSets" };

function useTheme() {
  const [theme, setTheme] = useState(localStorage.getItem("theme") || "system");
  useEffect(() => {
    localStorage.setItem("theme", theme);
    document.documentElement.dataset.theme = theme;
  }, [theme]);
  return [theme, setTheme];
}

// Home shows the overview, or the queues to a user who may not read all ClusterQueues, or the JobSets to one who may read none.
function Home({ tick, about }) {
  const answer = useAnswer("queues" + query({ limit: 1 }), tick);
  const isEmpty = answer.data && answer.data.total === 0;
  useEffect(() => {
    if (answer.data && (isEmpty ? about.synced : about.version)) {
      replace([isEmpty ? "jobsets" : about.overview ? "overview" : "queues"]);
    }
  }, [answer.data, about.synced, about.version]);
  return <Answered answer={{ error: answer.error }} />;
}

function View({ route, tick, about, theme }) {
  const [kind, first, second] = route.parts;
  if (kind === undefined) {
    return <Home tick={tick} about={about} />;
  }
  if (kind === "overview") {
    return <Overview tick={tick} theme={theme} />;
  }
  if (kind === "localqueues" && first === undefined) {
    return <LocalQueues parameters={route.parameters} tick={tick} />;
  }
  if (kind === "localqueues" && second !== undefined) {
    return <LocalQueue key={first + "/" + second} namespace={first} name={second} parameters={route.parameters} tick={tick} />;
  }
  if (kind === "queues" && first === undefined) {
    return <Queues parameters={route.parameters} tick={tick} />;
  }
  if (kind === "queues") {
    return <Queue key={first} name={first} parameters={route.parameters} tick={tick} theme={theme} />;
  }
  if (kind === "jobsets" && second !== undefined) {
    return <JobSet key={first + "/" + second} namespace={first} name={second} parameters={route.parameters} tick={tick} />;
  }
  if (kind === "jobsets" && first === undefined) {
    return <JobSets parameters={route.parameters} tick={tick} states={about.jobSetStates} />;
  }
  return <><h1>There is no such view</h1><p class="error" role="alert">Look at the <a href={to(["queues"])}>queues</a>, or search.</p></>;
}

function Gaps({ about }) {
  if (!about.gaps) {
    return null;
  }
  return (
    <details class="gaps" open>
      <summary>Not everything is shown</summary>
      <ul>
        {about.gaps.map((g, i) => (
          <li key={i}><b>{g.resource}</b>{g.namespaces && ` in namespace ${g.namespaces.join(", ")}`}: {g.reason}{g.cure && `; ${g.cure}`}</li>
        ))}
      </ul>
    </details>
  );
}

// Namespaces are what the filters by namespace propose: the first ones whose names contain the text of the filter that has the focus.
function Namespaces() {
  const [asked, setAsked] = useState({ text: "", times: 0 });
  const { data } = useAnswer("namespaces" + query({ text: asked.text }), asked.times);
  const shown = useRef([]);
  if (data) {
    shown.current = data.items; // they stay while those of another text are read
  }
  useEffect(() => {
    let timer;
    const ask = (e) => {
      if (e.target.getAttribute("list") === "namespaces") {
        const text = e.target.value;
        clearTimeout(timer);
        timer = setTimeout(() => setAsked(({ times }) => ({ text, times: times + 1 })), 150);
      }
    };
    document.addEventListener("focusin", ask);
    document.addEventListener("input", ask);
    return () => {
      clearTimeout(timer);
      document.removeEventListener("focusin", ask);
      document.removeEventListener("input", ask);
    };
  }, []);
  return <datalist id="namespaces">{shown.current.map((n) => <option key={n.name} value={n.name} />)}</datalist>;
}

// state says how far the page follows the cluster.
function state(live, about) {
  if (!live) {
    return "not connected";
  }
  if (about.takenAt) {
    return "snapshot";
  }
  if (about.stale) {
    return "out of date";
  }
  if (about.withoutLeader) {
    return "no manager";
  }
  return about.synced ? "live" : "reading…";
}

function App() {
  const route = useRoute();
  const { tick, live } = useChanges();
  const [theme, setTheme] = useTheme();
  const answer = useAnswer("about", tick);
  const about = answer.data || {};
  showAsOf(about.takenAt);
  const [kind, ...names] = route.parts;
  const place = route.parts.join("/");
  const shown = useRef(place);
  // Another view begins at its top, for readers, keys and screen readers. Home is none: it is replaced at once.
  useEffect(() => {
    const before = shown.current;
    shown.current = place;
    if (before !== place && before !== "") {
      document.getElementById("main").focus({ preventScroll: true });
      scrollTo(0, 0);
    }
  }, [place]);
  useEffect(() => {
    document.title = [...names, views[kind], "Tranche"].filter(Boolean).join(" · ");
  }, [route]);
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => { e.preventDefault(); document.getElementById("main").focus(); }}>Skip to the content</a>
      <header>
        <strong>Tranche</strong>
        <nav aria-label="Views">
          {Object.entries(views).filter(([name]) => name !== "overview" || about.overview).map(([name, title]) => (
            <a key={name} href={to([name])} aria-current={kind === name ? "page" : undefined}>{title}</a>
          ))}
        </nav>
        <Search />
        <span id="live" role="status" class={!live || about.stale || about.withoutLeader ? "stale" : about.takenAt ? "quiet" : "live"}>{state(live, about)}</span>
        <label>Theme <select id="theme" value={theme} onChange={(e) => setTheme(e.currentTarget.value)}>{themes.map((t) => <option key={t}>{t}</option>)}</select></label>
        {about.canSignOut && <button id="sign-out" onClick={signOut}>Sign out</button>}
      </header>
      <Namespaces />
      <main id="main" tabIndex={-1}>
        {answer.error && <p class="error" role="alert">{answer.error}</p>}
        {about.takenAt && <p class="notice">This is a snapshot, taken at <time datetime={about.takenAt}>{clock(about.takenAt)}</time>. All ages and expected starts are as of then.</p>}
        {about.withoutLeader && <p class="error" role="alert">What is shown may be out of date: {about.withoutLeader}.</p>}
        <Gaps about={about} />
        <View route={route} tick={tick} about={about} theme={theme} />
      </main>
      <footer class="quiet">{[about.user, about.source].filter(Boolean).join(" on ")}{(about.user || about.source) && ", "}Tranche {about.version}. Times are in {Intl.DateTimeFormat().resolvedOptions().timeZone}. Nothing can be changed here.</footer>
    </>
  );
}

render(<App />, document.getElementById("app"));
