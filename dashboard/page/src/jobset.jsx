// One JobSet: its stages over time, and why they wait.
import { useAnswer } from "./api.js";
import { Events, JobSetYAML, NotReady, Pods, Tabs } from "./details.jsx";
import { amounts, clock, duration, localTimes, plural, startText } from "./format.js";
import { Age, Answered, Scroll, State } from "./parts.jsx";
import { queueLink, to } from "./route.js";

const kinds = { waiting: "waiting for quota", reserved: "reserved: waiting for AdmissionChecks", idle: "idle: admitted, pods not all ready", running: "running", evicting: "evicted, pods terminating" };

const tabs = [["stages", "Stages"], ["pods", "Pods"], ["events", "Events"], ["yaml", "YAML"]];

export function JobSet({ namespace, name, parameters, tick }) {
  const answer = useAnswer(`jobsets/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, tick);
  return (
    <>
      <p class="crumbs"><a href={to(["jobsets"])}>JobSets</a> <a href={to(["jobsets"], { namespace })}>{namespace}</a></p>
      <h1>JobSet {name}</h1>
      <Answered answer={answer}>{(js) => <Details js={js} parameters={parameters} />}</Answered>
    </>
  );
}

function Details({ js, parameters }) {
  const { list = "stages" } = parameters;
  return (
    <>
      <p>
        <State state={js.state} reason={js.reason} /> created <Age time={js.created} /> ago
        {js.queue && <> in LocalQueue {js.queue}</>}
        {js.clusterQueue && <> of ClusterQueue <a href={queueLink(js.clusterQueue)}>{js.clusterQueue}</a></>}
        {js.restarts > 0 && `, ${js.restarts} restarts`}
      </p>
      {js.message && <p class="message"><b>{js.reason}</b> {localTimes(js.message)}</p>}
      {js.problem && <p class="problem">{js.problem}</p>}
      <Tabs label="Parts of the JobSet" tabs={tabs} current={list} link={(id) => to(["jobsets", js.namespace, js.name], { list: id === "stages" ? "" : id })} />
      {list === "stages" && <Stages js={js} />}
      {list === "pods" && <Pods js={js} parameters={parameters} />}
      {list === "events" && <Events js={js} parameters={parameters} />}
      {list === "yaml" && <JobSetYAML js={js} />}
    </>
  );
}

function Stages({ js }) {
  return (
    <>
      {js.gap && <p class="quiet">{js.gap}</p>}
      {js.withoutSets && <p class="quiet">What would let it in is not shown: {js.withoutSets}</p>}
      <Gantt js={js} />
      {js.stages.map((stage, i) => <Stage key={stage.name} js={js} stage={stage} number={i + 1} of={js.stages.length} />)}
    </>
  );
}

const ms = (time) => new Date(time).getTime();
const end = (span, now) => (span.to ? ms(span.to) : now);

// axisOf returns the first and the last time of the chart, and a function from a time to a place in percent. An expected start may lie beyond the
// chart: otherwise a start in days would leave no room for what has happened.
function axisOf(js, now) {
  const spans = js.stages.flatMap((s) => s.spans);
  const first = Math.min(now, ...spans.map((s) => ms(s.from)));
  const past = Math.max(now - first, 600_000);
  const starts = js.stages.flatMap((s) => [s.expectedStart?.about, s.expectedStart?.by].filter(Boolean).map(ms));
  const last = Math.max(first + 1000, ...spans.map((s) => end(s, now)), ...starts.map((t) => Math.min(t, now + 2 * past)));
  return { first, last, at: (time) => Math.min(100, Math.max(0, (100 * (time - first)) / (last - first))) };
}

function Gantt({ js }) {
  const now = ms(js.now);
  if (!js.stages.some((s) => s.spans.length || s.expectedStart)) {
    return null;
  }
  const { first, last, at } = axisOf(js, now);
  const hasStart = js.stages.some((s) => s.expectedStart?.about || s.expectedStart?.by);
  return (
    <figure class="gantt" aria-label="Stages over time">
      <figcaption class="legend quiet">
        {Object.entries(kinds).map(([kind, text]) => <span key={kind}><i class={"span-" + kind} /> {text}</span>)}
        {hasStart && <span><i class="expected" /> expected start</span>}
      </figcaption>
      {js.stages.map((stage) => (
        <div class="gantt-row" key={stage.name}>
          <a href={"#stage-" + encodeURIComponent(stage.name)} class="gantt-name" title={stage.name} onClick={(e) => show(e, stage.name)}>{stage.name}</a>
          <div class="gantt-track">
            {stage.spans.map((s, i) => {
              const text = `${stage.name}: ${spanText(s, now)}`;
              const left = at(ms(s.from));
              return <i key={i} class={"span-" + s.kind} role="img" aria-label={text} title={text} style={{ left: left + "%", width: Math.max(0.3, at(end(s, now)) - left) + "%" }} />;
            })}
            <Expected stage={stage} at={at} />
            {hasStart && <i class="now" style={{ left: at(now) + "%" }} />}
          </div>
        </div>
      ))}
      <div class="gantt-axis"><span>{clock(first)}</span>{hasStart && <span class="now-label" style={{ left: at(now) + "%" }}>now</span>}<span>{clock(last)}</span></div>
      <Times js={js} now={now} />
    </figure>
  );
}

const spanText = (s, now) => `${kinds[s.kind]} from ${clock(s.from)} ${s.to ? "to " + clock(s.to) : "until now"}, ${duration((end(s, now) - ms(s.from)) / 1000)}`;

// Expected marks the time between the likely and the latest start of a stage.
function Expected({ stage, at }) {
  const { about, by } = stage.expectedStart || {};
  if (!about && !by) {
    return null;
  }
  const from = at(Math.min(ms(about || by), ms(by || about)));
  const width = Math.max(0.6, at(Math.max(ms(about || by), ms(by || about))) - from);
  const { text, title } = startText(stage.expectedStart);
  return <i class="expected" role="img" aria-label={`${stage.name}: expected to start ${text}`} title={`${stage.name}: expected to start ${title}`} style={{ left: Math.min(from, 100 - width) + "%", width: width + "%" }} />;
}

// Times has the chart as text.
function Times({ js, now }) {
  return (
    <details class="times">
      <summary>Times</summary>
      <Scroll label="Times of the stages">
        <table>
          <thead><tr><th scope="col">Stage</th><th scope="col">State</th><th scope="col">From</th><th scope="col">To</th><th scope="col" class="number">Duration</th></tr></thead>
          <tbody>
            {js.stages.flatMap((stage) => stage.spans.map((s, i) => (
              <tr key={stage.name + "/" + i}>
                <td>{stage.name}</td><td>{kinds[s.kind]}</td>
                <td><time datetime={s.from}>{clock(s.from)}</time></td>
                <td>{s.to ? <time datetime={s.to}>{clock(s.to)}</time> : "now"}</td>
                <td class="number">{duration((end(s, now) - ms(s.from)) / 1000)}</td>
              </tr>
            )))}
          </tbody>
        </table>
      </Scroll>
    </details>
  );
}

// show scrolls to a stage. The fragment of the URL has the view.
function show(event, name) {
  event.preventDefault();
  const section = document.getElementById("stage-" + name);
  section.scrollIntoView();
  section.focus();
}

function Stage({ js, stage, number, of }) {
  const jobs = Object.entries(stage.jobs).filter(([, n]) => n > 0).map(([state, n]) => `${n} ${state}`).join(", ");
  return (
    <section class="stage" id={"stage-" + stage.name} tabIndex={-1}>
      <h2>Stage {number}/{of} {stage.name} <State state={stage.state} reason={stage.reason} /></h2>
      <p>
        {plural(stage.pods, "pod")} of {(stage.replicatedJobs || []).join(", ")}
        {stage.after && <>, starts after {stage.after.map((c) => `${c.stage} is ${c.status}`).join(" and ")}</>}
        {jobs && `; Jobs: ${jobs}`}
      </p>
      {stage.state && stage.state !== "Finished" && stage.message && <p class="message"><b>{stage.reason}</b> {localTimes(stage.message)}</p>}
      <dl>
        <Fact name="Quota Workload" value={stage.workload} />
        <Fact name="ClusterQueue" value={stage.clusterQueue && <a href={queueLink(stage.clusterQueue)}>{stage.clusterQueue}</a>} />
        <Fact name="Position in the ClusterQueue" value={stage.position === undefined ? "" : `${stage.position} (0 is next)`} />
        <Fact name="Expected start" value={stage.expectedStart && <Expectation start={stage.expectedStart} />} />
        <Fact name="Queues again at" value={stage.requeueAt && clock(stage.requeueAt)} />
        <Fact name="Holds" value={amounts(stage.held)} />
        <Fact name="Asks for" value={amounts(stage.requests)} />
        <Fact name="Accelerator time held" value={Object.entries(stage.heldSeconds || {}).map(([r, n]) => `${duration(n)} of ${r}, of which idle ${duration((stage.idleSeconds || {})[r] || 0)}`).join("; ")} />
        <Fact name="Evictions" value={evictionsOf(stage.evictions || [])} />
        <Fact name="Growths" value={(stage.growths || []).map((g) => `${g.name}: ${g.state}`).join(", ")} />
      </dl>
      {stage.state === "Starting" && <NotReady namespace={js.namespace} name={js.name} stage={stage.name} />}
      {stage.explanation && <Explanation x={stage.explanation} />}
      {stage.note && <p class="quiet note">Note: {stage.note}</p>}
      {stage.letIn && <LetIn x={stage.letIn} />}
    </section>
  );
}

// evictionsOf counts evictions by reason, and in all if there are several reasons.
function evictionsOf(evictions) {
  const sum = evictions.reduce((n, e) => n + e.count, 0);
  return (evictions.length > 1 ? `${sum}: ` : "") + evictions.map((e) => `${e.count} ${e.reason}${e.cause ? " (" + e.cause + ")" : ""}`).join(", ");
}

function Expectation({ start }) {
  const { text, title } = startText(start);
  return <><span class="start" title={title}>{text}</span>{start.basis && ` (${start.basis})`}{start.computed && <span class="quiet">, computed <Age time={start.computed} /> ago</span>}</>;
}

function Fact({ name, value }) {
  return value ? <><dt>{name}</dt><dd>{value}</dd></> : null;
}

function Explanation({ x }) {
  const alternatives = x.alternatives || [];
  return (
    <>
      {x.behind && <p>Blocked by quota Workload {x.behind.namespace}/{x.behind.name}, which is ahead in the queue.</p>}
      {alternatives.map((a, i) => (
        <Scroll key={i} label="Missing quota"><table class="shortages">
          <caption>{alternatives.length > 1 ? `Missing quota, flavor alternative ${i + 1}` : "Missing quota"}</caption>
          <thead><tr><th scope="col">Flavor</th><th scope="col">Resource</th><th scope="col" class="number">Needs</th><th scope="col" class="number">Free</th><th scope="col" class="number">Missing</th><th scope="col">Limit</th><th scope="col">Held by</th></tr></thead>
          <tbody>
            {a.shortages.map((s) => (
              <tr key={s.flavor + "/" + s.resource}>
                <td>{s.flavor}</td><td>{s.resource}</td><td class="number">{s.needed}</td><td class="number">{s.free}</td><td class="number">{s.missing}</td>
                <td>{s.constraint.limit} of {s.constraint.kind} {s.constraint.name}: {s.constraint.amount}</td>
                <td>
                  {(s.holders || []).map((h, k) => <div key={k}>{h.kind} {h.name ? `${h.namespace}/${h.name}` : "of another namespace"}: {h.amount}{h.leaving ? ", evicted" : h.runsUntil ? `, will be preempted, runs until ${clock(h.runsUntil)}` : ""}</div>)}
                  {s.moreHolders > 0 && <div>and {s.moreHolders} more</div>}
                </td>
              </tr>
            ))}
          </tbody>
        </table></Scroll>
      ))}
    </>
  );
}

function LetIn({ x }) {
  return (
    <div class="let-in">
      {x.why && <p>To let it in: {x.why}</p>}
      {x.sets && <><p>Any one of these would let it in:</p><ol>{x.sets.map((text, i) => <li key={i}>{text}</li>)}</ol></>}
      <p class="quiet">From a snapshot taken <Age time={x.taken} /> ago.</p>
    </div>
  );
}
