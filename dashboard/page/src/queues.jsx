// The tree of Cohorts and ClusterQueues.
import { query, useAnswer } from "./api.js";
import { plural } from "./format.js";
import { Answered, Bars, Choice, Filter, Legend, Nothing, Pager, Scroll } from "./parts.jsx";
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
            {page.total === 0 ? <Nothing parameters={parameters} parts={["queues"]} none="There are no ClusterQueues, or you may not read them." /> : (
              <Scroll label="Queues">
                <table class="queues cards">
                  <thead>
                    <tr>
                      <th scope="col">Name</th><th scope="col" class="number">Pending</th><th scope="col" class="number">Holding quota</th>
                      <th scope="col" class="number" title="Weighted share of fair sharing">Share</th><th scope="col">Quota</th>
                    </tr>
                  </thead>
                  <tbody>{page.items.map((row) => <Row key={row.kind + "/" + row.name} row={row} under={parameters.under} />)}</tbody>
                </table>
              </Scroll>
            )}
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
      <td class={"name depth-" + Math.min(depth, 8)}>
        {isCohort ? <a href={to(["queues"], { under: row.name })}>{row.name}</a> : <a href={queueLink(row.name)}>{row.name}</a>}
        {isCohort && <span class="quiet"> Cohort, {plural(row.clusterQueues || 0, "ClusterQueue")}</span>}
        {row.reason && <div class="problem">{row.reason}: {row.message}</div>}
      </td>
      <td class="number" data-label="pending">{row.pending.toLocaleString("en")}</td>
      <td class="number" data-label="holding quota">{row.reserving.toLocaleString("en")}</td>
      <td class="number" data-label="share">{row.share === undefined ? "–" : <span title={`weight ${row.weight}`}>{row.share}</span>}</td>
      <td><Bars bars={row.bars} /></td>
    </tr>
  );
}
