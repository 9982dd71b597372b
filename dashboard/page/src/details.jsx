// What is read from the API server when its tab is opened: pods, Events, settings and YAML.
import { useEffect, useState } from "preact/hooks";
import "./details.css";
import { query, useAnswer } from "./api.js";
import { Age, Answered, Choice, Pager, Scroll } from "./parts.jsx";

const limit = 50;

// Tabs are links to the parts of a view. The name of the current one is in a parameter.
export function Tabs({ label, tabs, current, link }) {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(([id, title]) => <a key={id} href={link(id)} aria-current={id === current ? "true" : undefined}>{title}</a>)}
    </nav>
  );
}

// useClock returns a number that grows every ten seconds while the page is seen. The server does not report changes of pods and Events.
function useClock() {
  const [times, setTimes] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => document.hidden || setTimes((n) => n + 1), 10_000);
    return () => clearInterval(timer);
  }, []);
  return times;
}

const jobSetPath = (namespace, name) => `jobsets/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;

function Gaps({ gaps }) {
  return (gaps || []).map((text) => <p key={text} class="quiet">{text}.</p>);
}

function Sentences({ all }) {
  return all && <ul class="why">{all.map((text) => <li key={text}>{text}</li>)}</ul>;
}

// NotReady shows why pods of a stage are missing or not ready.
export function NotReady({ namespace, name, stage }) {
  const { data } = useAnswer(jobSetPath(namespace, name) + "/pods" + query({ stage, limit: 1 }), useClock());
  if (!data) {
    return null;
  }
  return (
    <div class="not-ready">
      {data.why && <p>Its pods are not all ready:</p>}
      <Sentences all={data.why} />
      <Gaps gaps={data.gaps} />
    </div>
  );
}

export function Pods({ js, parameters }) {
  const { stage, offset } = parameters;
  const answer = useAnswer(jobSetPath(js.namespace, js.name) + "/pods" + query({ stage, offset, limit }), useClock());
  return (
    <>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Choice label="Stage" name="stage" value={stage} options={js.stages.map((s) => s.name)} />
      </form>
      <Answered answer={answer}>
        {(pods) => (
          <>
            <Gaps gaps={pods.gaps} />
            <Counts counts={pods.counts} />
            {pods.why && <h2>Why pods are missing or not ready</h2>}
            <Sentences all={pods.why} />
            {pods.total === 0 ? <p class="nothing">There are no pods.</p> : <PodTable items={pods.items} />}
            <Pager page={pods} limit={limit} noun="pod" />
          </>
        )}
      </Answered>
    </>
  );
}

function Counts({ counts }) {
  if (!counts.length) {
    return null;
  }
  const phases = [...new Set(counts.flatMap((c) => Object.keys(c.phases)))].sort();
  return (
    <Scroll label="Pods by stage">
      <table class="pod-counts">
        <thead><tr><th scope="col">Stage</th>{phases.map((p) => <th key={p} scope="col" class="number">{p}</th>)}<th scope="col" class="number">Ready</th><th scope="col" class="number" title="on which pods that have not ended are">Nodes</th></tr></thead>
        <tbody>
          {counts.map((c) => (
            <tr key={c.stage}>
              <th scope="row">{c.stage}</th>{phases.map((p) => <td key={p} class="number">{(c.phases[p] || 0).toLocaleString("en")}</td>)}
              <td class="number">{c.ready.toLocaleString("en")}</td><td class="number">{c.nodes.toLocaleString("en")}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function PodTable({ items }) {
  return (
    <Scroll label="Pods">
      <table class="pods">
        <thead>
          <tr>
            <th scope="col">Pod</th><th scope="col">Stage</th><th scope="col">Phase</th><th scope="col" class="number" title="containers that are ready, of all">Ready</th>
            <th scope="col" class="number">Restarts</th><th scope="col">Node</th><th scope="col" class="number">Age</th><th scope="col">Why it is not ready</th>
          </tr>
        </thead>
        <tbody>
          {items.map((p) => (
            <tr key={p.name}>
              <td class="name">{p.name}</td><td>{p.stage}</td><td>{p.phase}</td><td class="number">{p.ready}/{p.containers}</td>
              <td class="number">{p.restarts}</td><td class="node">{p.node || "–"}</td><td class="number"><Age time={p.created} /></td><td class="message">{p.why}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

export function Events({ js, parameters }) {
  const { type, offset } = parameters;
  const answer = useAnswer(jobSetPath(js.namespace, js.name) + "/events" + query({ type, offset, limit }), useClock());
  return (
    <>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Choice label="Type" name="type" value={type} options={["Normal", "Warning"]} />
      </form>
      <Answered answer={answer}>
        {(events) => (
          <>
            <p>{Object.entries(events.types).sort().map(([name, n]) => `${n.toLocaleString("en")} ${name}`).join(", ")}</p>
            <Gaps gaps={events.gaps} />
            {events.total === 0 ? <p class="nothing">There are no Events. The API server usually keeps them for an hour.</p> : <EventTable items={events.items} />}
            <Pager page={events} limit={limit} noun="Event" />
          </>
        )}
      </Answered>
    </>
  );
}

function EventTable({ items }) {
  return (
    <Scroll label="Events">
      <table class="events">
        <thead>
          <tr>
            <th scope="col" class="number">Last seen</th><th scope="col">Type</th><th scope="col">Reason</th><th scope="col">Object</th>
            <th scope="col" class="number">Count</th><th scope="col">Message</th><th scope="col">From</th>
          </tr>
        </thead>
        <tbody>
          {items.map((e) => (
            <tr key={[e.kind, e.name, e.reason, e.message, e.first].join("/")}>
              <td class="number"><Age time={e.last} /></td><td class={e.type === "Warning" ? "problem" : ""}>{e.type}</td><td>{e.reason}</td><td class="name">{e.kind} {e.name}</td>
              <td class="number">{e.count}</td><td class="message">{e.message}</td><td>{e.source}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Text({ answer }) {
  return <Answered answer={answer}>{({ yaml }) => <Scroll label="YAML"><pre class="yaml">{yaml}</pre></Scroll>}</Answered>;
}

export function JobSetYAML({ js }) {
  return <Text answer={useAnswer(jobSetPath(js.namespace, js.name) + "/yaml", useClock())} />;
}

// Settings shows the settings of a queue in words, or its YAML. The path is that of the queue.
export function Settings({ path, isText }) {
  const answer = useAnswer(path + "/settings", useClock());
  if (isText) {
    return <Text answer={answer} />;
  }
  return (
    <Answered answer={answer}>
      {({ settings }) => (
        <Scroll label="Settings">
          <table class="settings">
            <thead><tr><th scope="col">Field</th><th scope="col">Value</th><th scope="col">Meaning</th></tr></thead>
            <tbody>
              {settings.map((s) => <tr key={s.field + "/" + s.value}><td class="field">{s.field}</td><td>{s.value || "–"}</td><td class="meaning">{s.text}</td></tr>)}
            </tbody>
          </table>
        </Scroll>
      )}
    </Answered>
  );
}
