// One JobSet: its stages over time, and why they wait.
import { useAnswer } from "./api.js";
import { ago, amounts, clock, duration, plural } from "./format.js";
import { Answered, State } from "./parts.jsx";
import { queueLink, to } from "./route.js";

const kinds = { waiting: "waiting for quota", reserved: "reserved", idle: "idle: admitted, pods not all ready", running: "running", evicting: "evicted, pods terminating" };

export function JobSet({ namespace, name, tick }) {
  const answer = useAnswer(`jobsets/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, tick);
  return (
    <>
      <p class="crumbs"><a href={to(["jobsets"])}>JobSets</a> <a href={to(["jobsets"], { namespace })}>{namespace}</a></p>
      <h1>JobSet {name}</h1>
      <Answered answer={answer}>{(js) => <Details js={js} />}</Answered>
    </>
  );
}

function Details({ js }) {
  return (
    <>
      <p>
        <State state={js.state} /> created {ago(js.created)} ago
        {js.queue && <> in LocalQueue {js.queue}</>}
        {js.clusterQueue && <> of ClusterQueue <a href={queueLink(js.clusterQueue)}>{js.clusterQueue}</a></>}
        {js.restarts > 0 && `, ${js.restarts} restarts`}
      </p>
      {js.message && <p class="message"><b>{js.reason}</b> {js.message}</p>}
      {js.problem && <p class="problem">{js.problem}</p>}
      {js.gap && <p class="quiet">{js.gap}</p>}
      <Gantt js={js} />
      {js.stages.map((stage, i) => <Stage key={stage.name} stage={stage} number={i + 1} of={js.stages.length} />)}
    </>
  );
}

const end = (span, now) => (span.to ? new Date(span.to).getTime() : now);

function Gantt({ js }) {
  const now = new Date(js.now).getTime();
  const spans = js.stages.flatMap((s) => s.spans);
  if (!spans.length) {
    return null;
  }
  const first = Math.min(...spans.map((s) => new Date(s.from).getTime()));
  const last = Math.max(first + 1000, ...spans.map((s) => end(s, now)));
  const at = (time) => (100 * (time - first)) / (last - first);
  return (
    <figure class="gantt" aria-label="Stages over time">
      <figcaption class="quiet">
        {Object.entries(kinds).map(([kind, text]) => <span key={kind}><i class={"span-" + kind} /> {text} </span>)}
      </figcaption>
      {js.stages.map((stage) => (
        <div class="gantt-row" key={stage.name}>
          <a href={"#stage-" + encodeURIComponent(stage.name)} class="gantt-name" onClick={(e) => show(e, stage.name)}>{stage.name}</a>
          <div class="gantt-track">
            {stage.spans.map((s, i) => {
              const from = new Date(s.from).getTime();
              const text = `${stage.name}: ${kinds[s.kind]} from ${clock(s.from)} ${s.to ? "to " + clock(s.to) : "until now"}, ${duration((end(s, now) - from) / 1000)}`;
              return <i key={i} class={"span-" + s.kind} role="img" aria-label={text} title={text} style={{ left: at(from) + "%", width: Math.max(0.3, at(end(s, now)) - at(from)) + "%" }} />;
            })}
          </div>
        </div>
      ))}
      <div class="gantt-axis"><span>{clock(first)}</span><span>{clock(last)}</span></div>
    </figure>
  );
}

// show scrolls to a stage. The fragment of the URL has the view.
function show(event, name) {
  event.preventDefault();
  const section = document.getElementById("stage-" + name);
  section.scrollIntoView();
  section.focus();
}

function Stage({ stage, number, of }) {
  const jobs = Object.entries(stage.jobs).filter(([, n]) => n > 0).map(([state, n]) => `${n} ${state}`).join(", ");
  return (
    <section class="stage" id={"stage-" + stage.name} tabIndex={-1}>
      <h2>Stage {number}/{of} {stage.name} <State state={stage.state} /></h2>
      <p>
        {plural(stage.pods, "pod")} of {(stage.replicatedJobs || []).join(", ")}
        {stage.after && <>, starts after {stage.after.map((c) => `${c.stage} is ${c.status}`).join(" and ")}</>}
        {jobs && `; Jobs: ${jobs}`}
      </p>
      {stage.state && stage.state !== "Finished" && stage.message && <p class="message"><b>{stage.reason}</b> {stage.message}</p>}
      <dl>
        <Fact name="Quota Workload" value={stage.workload} />
        <Fact name="ClusterQueue" value={stage.clusterQueue && <a href={queueLink(stage.clusterQueue)}>{stage.clusterQueue}</a>} />
        <Fact name="Position in the ClusterQueue" value={stage.position === undefined ? "" : `${stage.position} (0 is next)`} />
        <Fact name="Queues again at" value={stage.requeueAt && clock(stage.requeueAt)} />
        <Fact name="Holds" value={amounts(stage.held)} />
        <Fact name="Asks for" value={amounts(stage.requests)} />
        <Fact name="Accelerator time held" value={Object.entries(stage.heldSeconds || {}).map(([r, n]) => `${duration(n)} of ${r}, of which idle ${duration((stage.idleSeconds || {})[r] || 0)}`).join("; ")} />
        <Fact name="Evictions" value={(stage.evictions || []).map((e) => `${e.count} ${e.reason}${e.cause ? " (" + e.cause + ")" : ""}`).join(", ")} />
        <Fact name="Growths" value={(stage.growths || []).map((g) => `${g.name}: ${g.state}`).join(", ")} />
      </dl>
      {stage.explanation && <Explanation x={stage.explanation} />}
    </section>
  );
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
        <table key={i} class="shortages">
          <caption>{alternatives.length > 1 ? `Missing quota, flavor alternative ${i + 1}` : "Missing quota"}</caption>
          <thead><tr><th>Flavor</th><th>Resource</th><th class="number">Needs</th><th class="number">Free</th><th class="number">Missing</th><th>Limit</th><th>Held by</th></tr></thead>
          <tbody>
            {a.shortages.map((s) => (
              <tr key={s.flavor + "/" + s.resource}>
                <td>{s.flavor}</td><td>{s.resource}</td><td class="number">{s.needed}</td><td class="number">{s.free}</td><td class="number">{s.missing}</td>
                <td>{s.constraint.limit} of {s.constraint.kind} {s.constraint.name}: {s.constraint.amount}</td>
                <td>
                  {(s.holders || []).map((h, k) => <div key={k}>{h.kind} {h.name ? `${h.namespace}/${h.name}` : "of another namespace"}: {h.amount}{h.leaving ? ", evicted" : ""}</div>)}
                  {s.moreHolders > 0 && <div>and {s.moreHolders} more</div>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      ))}
    </>
  );
}
