// The tree of Cohorts and ClusterQueues.
import { query, useAnswer } from "./api.js";
import { Answered, Bars, Choice, Filter, Legend, Pager } from "./parts.jsx";
import { queueLink, to } from "./route.js";

const limit = 50;

export function Queues({ parameters, tick }) {
  const answer = useAnswer("queues" + query({ ...parameters, limit }), tick);
  return (
    <>
      <h1>Queues{parameters.under && <> below {parameters.under}</>}</h1>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Filter label="Name" name="text" value={parameters.text} />
        <Filter label="Used by namespace" name="namespace" value={parameters.namespace} list="namespaces" />
        <Choice label="State" name="state" value={parameters.state} options={["pending", "borrowing", "lending", "idle", "inactive"]} />
        {parameters.under && <a href={to(["queues"])}>all Cohorts</a>}
      </form>
      <Legend />
      <Answered answer={answer}>
        {(page) => (
          <>
            <table class="queues">
              <thead>
                <tr><th>Name</th><th class="number">Pending</th><th class="number">Holding quota</th><th class="number">Share</th><th>Quota</th></tr>
              </thead>
              <tbody>{page.items.map((row) => <Row key={row.kind + "/" + row.name} row={row} under={parameters.under} />)}</tbody>
            </table>
            <Pager page={page} limit={limit} noun="row" />
          </>
        )}
      </Answered>
    </>
  );
}

function Row({ row, under }) {
  const depth = row.path.length - (under ? Math.max(0, row.path.indexOf(under)) : 0);
  const isCohort = row.kind === "Cohort";
  return (
    <tr class={isCohort ? "cohort" : ""}>
      <td>
        <span class={"depth depth-" + Math.min(depth, 8)} />
        {isCohort ? <a href={to(["queues"], { under: row.name })}>{row.name}</a> : <a href={queueLink(row.name)}>{row.name}</a>}
        {isCohort && <span class="quiet"> Cohort, {row.clusterQueues} ClusterQueues</span>}
        {row.reason && <div class="problem">{row.reason}: {row.message}</div>}
      </td>
      <td class="number">{row.pending}</td>
      <td class="number">{row.reserving}</td>
      <td class="number">{row.share === undefined ? "–" : <span title={`weight ${row.weight}`}>{row.share}</span>}</td>
      <td><Bars bars={row.bars} /></td>
    </tr>
  );
}
