// What sums up all ClusterQueues: accelerators, users, what waits, and what changes next.
import { useAnswer } from "./api.js";
import { amount, amounts, clock, minute, plural } from "./format.js";
import { Age, Answered, Message, Owner, part, Scroll } from "./parts.jsx";
import { Plot } from "./plot.jsx";
import { queueLink, to } from "./route.js";

// The parts of what is held of an accelerator, and what is free, in the order of a bar: name, class, and color of the plot.
const kinds = [
  ["inUse", "in use", "busy", "--busy"], ["notReady", "idle: admitted, pods not all ready", "idle", "--idle"],
  ["awaitsChecks", "reserved: waiting for AdmissionChecks", "reserved", "--reserved"], ["laterStages", "reserved: kept for later stages", "later", "--later"],
  ["evicting", "evicted, pods terminating", "evicting", "--bad"], ["free", "free", "free", "--raised"],
];
const changes = { Start: "is expected to start", End: "ends at the latest", Preemption: "is preempted" };

export function Overview({ tick, theme }) {
  const answer = useAnswer("overview", tick);
  return (
    <>
      <h1>Overview</h1>
      <Answered answer={answer}>
        {(all) => (
          <>
            <Counts all={all} />
            <Accelerators all={all} theme={theme} />
            <Users all={all} />
            <Waiting all={all} />
            <Changes all={all} />
          </>
        )}
      </Answered>
    </>
  );
}

function Counts({ all }) {
  const jobSets = Object.entries(all.jobSets).map(([state, n]) => <a key={state} href={to(["jobsets"], { state })}>{n.toLocaleString("en")} {state}</a>);
  const workloads = Object.entries(all.workloads).map(([state, n]) => `${n.toLocaleString("en")} ${state}`).join(", ");
  return (
    <>
      <p id="counts">
        JobSets: {jobSets.length ? jobSets.map((link, i) => <>{i > 0 && ", "}{link}</>) : "none"}
        {all.needChange > 0 && <>; <a class="problem" href={to(["jobsets"])}>{all.needChange.toLocaleString("en")} {all.needChange === 1 ? "needs" : "need"} a change before admission</a></>}
        {all.haveNotice > 0 && <>; {all.haveNotice.toLocaleString("en")} {all.haveNotice === 1 ? "has" : "have"} notice of preemption</>}
      </p>
      <p>Quota Workloads: {workloads || "none"}</p>
    </>
  );
}

// span says since when there are values.
function span(times) {
  const [first, last] = [times[0], times[times.length - 1]];
  return last - first < 23 * 3600 ? `Since ${minute(first * 1000)}, when this dashboard was started.` : "The last day.";
}

function Accelerators({ all, theme }) {
  return (
    <section>
      <h2>Accelerators</h2>
      <p class="legend quiet">
        {kinds.map(([name, text, style]) => <span key={name}><i class={style} /> {text}{name === "free" && ": nominal quota that is not held"}</span>)}
      </p>
      {all.partial && <p class="quiet">Idle quota is not known: you may not read all quota Workloads.</p>}
      {all.accelerators.length === 0 ? <p class="nothing">No ClusterQueue has quota of an accelerator.</p> : all.times.length > 1 && <p class="quiet">{span(all.times)}</p>}
      <div class="plots">{all.accelerators.map((a) => <Accelerator key={a.resource + "/" + a.flavor} times={all.times} a={withFree(a)} theme={theme} />)}</div>
      {all.omittedAccelerators > 0 && <p class="quiet">{all.omittedAccelerators} more with less quota.</p>}
    </section>
  );
}

// withFree adds the quota that is not held.
function withFree(a) {
  const held = (i) => kinds.reduce((sum, [name]) => sum + ((a[name] && a[name][i]) || 0), 0);
  return { ...a, free: a.quota.map((quota, i) => (quota === null ? null : Math.max(0, quota - held(i)))) };
}

function Accelerator({ times, a, theme }) {
  const now = times.length - 1;
  const known = kinds.filter(([name]) => a[name]);
  const whole = known.reduce((sum, [name]) => sum + a[name][now], 0);
  const facts = known.filter(([name]) => a[name][now] > 0).map(([name, text]) => `${amount(a.resource, a[name][now])} ${text}`);
  const text = `${amount(a.resource, whole - a.free[now])} of ${amount(a.resource, a.quota[now])} held${facts.length ? ": " + facts.join("; ") : ""}`;
  return (
    <div class="accelerator">
      <h3><b>{a.resource}</b> {a.flavor}</h3>
      <span class="track" role="img" aria-label={`${a.resource} of flavor ${a.flavor}: ${text}`}>
        {known.map(([name, , style]) => <i key={name} class={style} style={part(a[name][now], whole)} />)}
      </span>
      <p class="facts">{text}</p>
      {now > 0 && (
        <Plot title={`${a.resource} of ${a.flavor} over time`} resource={a.resource} times={times} theme={theme} isStacked
          series={[...known].reverse().map(([name, label, , color]) => ({ label: label.split(":").pop().trim(), values: a[name], color }))} />
      )}
    </div>
  );
}

function Users({ all }) {
  return (
    <section>
      <h2>Namespaces that hold most accelerators</h2>
      {all.users.length === 0 && !all.hidden ? <p class="nothing">No namespace holds accelerators.</p> : (
        <Scroll label="Namespaces that hold most accelerators">
          <table class="cards users">
            <thead><tr><th scope="col">Namespace</th><th scope="col">Holds</th><th scope="col">Of which idle</th></tr></thead>
            <tbody>
              {all.users.map((u) => (
                <tr key={u.namespace}>
                  <td class="name"><a href={to(["jobsets"], { namespace: u.namespace })}>{u.namespace}</a></td>
                  <td data-label="holds">{amounts(u.held)}</td><td data-label="of which idle">{amounts(u.idle)}</td>
                </tr>
              ))}
              {all.hidden && <tr class="quiet"><td class="name">namespaces that you may not read</td><td data-label="hold">{amounts(all.hidden)}</td><td /></tr>}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

function Waiting({ all }) {
  return (
    <section>
      <h2>Waiting longest</h2>
      {all.waiting.length === 0 ? <p class="nothing">No quota Workload that you may read is pending.</p> : (
        <Scroll label="Waiting longest">
          <table class="cards waiting">
            <thead>
              <tr>
                <th scope="col">Quota Workload of</th><th scope="col">ClusterQueue</th><th scope="col" class="number" title="0 is next">Position</th>
                <th scope="col" class="number">Since</th><th scope="col">Asks for</th><th scope="col">Reason</th>
              </tr>
            </thead>
            <tbody>
              {all.waiting.map((w) => (
                <tr key={w.namespace + "/" + w.name}>
                  <td class="name"><Owner w={w} /></td>
                  <td data-label="in">{w.clusterQueue && <a href={queueLink(w.clusterQueue)}>{w.clusterQueue}</a>}</td>
                  <td class="number" data-label="ahead">{w.position ?? "–"}</td><td class="number" data-label="waiting"><Age time={w.since} /></td>
                  <td data-label="asks for">{amounts(w.requests)}</td><td class="message"><Message row={w} /></td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

function Changes({ all }) {
  return (
    <section>
      <h2>Next changes</h2>
      {all.changes.length === 0 ? <p class="nothing">No start, end or preemption that you may read is known.</p> : (
        <Scroll label="Next changes">
          <table class="cards changes">
            <thead><tr><th scope="col">At</th><th scope="col">Quota Workload of</th><th scope="col">What</th><th scope="col">Holds or asks for</th><th scope="col">ClusterQueue</th></tr></thead>
            <tbody>
              {all.changes.map((c) => (
                <tr key={[c.at, c.kind, c.namespace, c.name, c.owner].join("/")}>
                  <td><time datetime={new Date(c.at * 1000).toISOString()} title={clock(c.at * 1000)}>{minute(c.at * 1000)}</time></td>
                  <td class="name"><Owner w={c} /></td><td>{changes[c.kind]}</td>
                  <td data-label={c.kind === "Start" ? "asks for" : "holds"}>{amounts(c.amounts)}</td>
                  <td data-label="in">{c.clusterQueue && <a href={queueLink(c.clusterQueue)}>{c.clusterQueue}</a>}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {all.overdue > 0 && <p class="quiet"><a href={to(["jobsets"], { state: "Waiting", sort: "start" })}>{plural(all.overdue, "expected time")}</a> passed without the change.</p>}
    </section>
  );
}
