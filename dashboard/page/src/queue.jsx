// One ClusterQueue: its quota, its line, and its past usage.
import { query, useAnswer } from "./api.js";
import { Settings, Tabs } from "./details.jsx";
import { amounts, plural } from "./format.js";
import { Age, Answered, Bars, Choice, Filter, Legend, Message, Nothing, Owner, Pager, Scroll, Start, State } from "./parts.jsx";
import { Plot } from "./plot.jsx";
import { localQueueLink, to } from "./route.js";

const limit = 50;
const lists = [["pending", "Pending"], ["holding", "Holding quota"], ["other", "Not in the queue"], ["usage", "Usage"], ["settings", "Settings"], ["yaml", "YAML"]];
const empty = {
  pending: "No quota Workload is pending here.", holding: "No quota Workload holds quota here.", other: "No quota Workload is gated, deactivated or backing off here.",
};

export function Queue({ name, parameters, tick, theme }) {
  const { list = "pending" } = parameters;
  const answer = useAnswer("queues/" + encodeURIComponent(name), tick);
  return (
    <>
      <p class="crumbs"><a href={to(["queues"])}>Queues</a></p>
      <h1>ClusterQueue {name}</h1>
      <Answered answer={answer}>{(queue) => <Facts queue={queue} />}</Answered>
      <section>
        <Tabs label="Parts of the ClusterQueue" tabs={lists} current={list} link={(id) => to(["queues", name], { ...parameters, list: id, state: "", offset: 0 })} />
        {list === "usage" && answer.data && <Usage queue={answer.data} theme={theme} />}
        {(list === "settings" || list === "yaml") && <Settings path={"queues/" + encodeURIComponent(name)} isText={list === "yaml"} />}
        {list in empty && <Workloads parts={["queues", name]} list={list} parameters={parameters} tick={tick} order={answer.data && answer.data.order} />}
      </section>
    </>
  );
}

function Facts({ queue }) {
  return (
    <>
      <p>
        {queue.path.length > 0 && <>in Cohort {queue.path.map((c, i) => <>{i > 0 && " / "}<a key={c} href={to(["queues"], { under: c })}>{c}</a></>)}, </>}
        {queue.strategy}{queue.stop && `, stopped: ${queue.stop}`}{queue.share !== undefined && `, fair share ${queue.share} at weight ${queue.weight}`}
        , {Object.entries(queue.states).map(([state, n]) => `${n.toLocaleString("en")} ${state}`).join(", ") || "no quota Workloads"}
      </p>
      {queue.reason && <p class="problem">{queue.reason}: {queue.message}</p>}
      <Legend />
      <Bars bars={queue.bars} />
      <LocalQueues queue={queue} />
    </>
  );
}

// Usage shows the past usage of each resource.
function Usage({ queue, theme }) {
  const byResource = new Map();
  for (const u of queue.history.used) {
    byResource.set(u.resource, [...(byResource.get(u.resource) || []), u]);
  }
  return (
    <>
      <p class="quiet">The last day, since this dashboard was started: each minute of the last four hours, and each tenth one before.</p>
      <div class="plots">
        {[...byResource].map(([resource, used]) => (
          <Plot key={resource} title={`${resource} used`} resource={resource} times={queue.history.times} theme={theme}
            series={used.map((u) => ({ label: u.flavor, values: u.values }))} />
        ))}
        <Plot title="pending quota Workloads" resource="" times={queue.history.times} theme={theme} series={[{ label: "pending", values: queue.history.pending }]} />
      </div>
    </>
  );
}

function LocalQueues({ queue }) {
  if (!queue.localQueues.length && !queue.hiddenLocalQueues) {
    return <p class="quiet">No LocalQueue leads here.</p>;
  }
  return (
    <details>
      <summary>{plural(queue.localQueues.length, "LocalQueue")}{queue.hiddenLocalQueues ? ` and ${queue.hiddenLocalQueues} in namespaces that you may not read` : ""}</summary>
      <table>
        <thead><tr><th scope="col">Namespace</th><th scope="col">Name</th><th scope="col" class="number">Pending</th><th scope="col" class="number">Holding quota</th><th scope="col">Holds</th><th scope="col">Status</th></tr></thead>
        <tbody>
          {queue.localQueues.map((q) => (
            <tr key={q.namespace + "/" + q.name}>
              <td>{q.namespace}</td>
              <td><a href={localQueueLink(q.namespace, q.name)}>{q.name}</a></td>
              <td class="number">{q.pending}</td><td class="number">{q.holding}</td><td>{amounts(q.held)}</td>
              <td>{q.stop && `stopped: ${q.stop} `}{q.reason && ` ${q.reason}: ${q.message}`}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </details>
  );
}

// Workloads is a list of quota Workloads of a ClusterQueue, or of a LocalQueue.
export function Workloads({ parts, list, parameters, tick, order }) {
  const answer = useAnswer(parts.map(encodeURIComponent).join("/") + "/workloads" + query({ ...parameters, limit }), tick);
  const isOfLocalQueue = parts[0] === "localqueues";
  return (
    <>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Filter label="Name" name="text" value={parameters.text} />
        {!isOfLocalQueue && <Filter label="Namespace" name="namespace" value={parameters.namespace} list="namespaces" />}
        {!isOfLocalQueue && <Filter label="LocalQueue" name="queue" value={parameters.queue} />}
        {list === "holding" && <Choice label="State" name="state" value={parameters.state} options={["Reserved", "Starting", "Running", "Evicting"]} />}
        {list === "other" && <Choice label="State" name="state" value={parameters.state} options={["Gated", "Deactivated", "BackingOff"]} />}
      </form>
      {list === "pending" && order && <p class="quiet">{order}.</p>}
      <Answered answer={answer}>
        {(page) => (
          <>
            {page.total === 0 ? <Nothing parameters={parameters} parts={parts} none={empty[list]} /> : (
              <Scroll label="Quota Workloads">
                <table class="workloads">
                  <thead>
                    <tr>
                      {list === "pending" && isOfLocalQueue && <th scope="col" class="number" title="0 is next">Position here</th>}
                      {list === "pending" && <th scope="col" class="number" title="0 is next">{isOfLocalQueue ? "In the ClusterQueue" : "Position"}</th>}<th scope="col">Quota Workload of</th>
                      {!isOfLocalQueue && <th scope="col">LocalQueue</th>}<th scope="col" class="number">Priority</th>{list !== "pending" && <th scope="col">State</th>}
                      <th scope="col" class="number">Since</th>{list === "pending" && <th scope="col">Expected start</th>}
                      <th scope="col">{list === "holding" ? "Holds" : "Asks for"}</th><th scope="col">Reason</th>
                    </tr>
                  </thead>
                  <tbody>{page.items.map((w, i) => <Row key={w.hidden ? i : w.namespace + "/" + w.name} w={w} list={list} isOfLocalQueue={isOfLocalQueue} />)}</tbody>
                </table>
              </Scroll>
            )}
            <Pager page={page} limit={limit} noun="quota Workload" />
          </>
        )}
      </Answered>
    </>
  );
}

function Row({ w, list, isOfLocalQueue }) {
  if (w.hidden) {
    return (
      <tr class="quiet">
        {list === "pending" && <td class="number">{w.position ?? "–"}</td>}<td colspan={3}>in a namespace that you may not read</td>
        {list !== "pending" && <td><State state={w.state} reason={w.reason} /></td>}<td colspan={list === "pending" ? 4 : 3} />
      </tr>
    );
  }
  return (
    <tr>
      {list === "pending" && isOfLocalQueue && <td class="number">{w.positionInLocalQueue}</td>}
      {list === "pending" && <td class="number">{w.position ?? "–"}</td>}
      <td class="name">
        <Owner w={w} />
      </td>
      {!isOfLocalQueue && <td>{w.queue}</td>}
      <td class="number">{w.priority || 0}</td>
      {list !== "pending" && <td><State state={w.state} reason={w.reason} /></td>}
      <td class="number"><Age time={w.since} /></td>
      {list === "pending" && <td><Start start={w.expectedStart} /></td>}
      <td>{amounts(list === "holding" ? w.held : w.requests)}</td>
      <td class="message"><Message row={w} /></td>
    </tr>
  );
}
