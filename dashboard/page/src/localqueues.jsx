// The LocalQueues that a user may read, and one of them with the positions of what is pending there.
import { query, useAnswer } from "./api.js";
import { Settings, Tabs } from "./details.jsx";
import { amounts } from "./format.js";
import { Answered, Filter, Nothing, Pager, Scroll } from "./parts.jsx";
import { Workloads } from "./queue.jsx";
import { localQueueLink, queueLink, to } from "./route.js";

const limit = 50;
const lists = [["pending", "Pending"], ["holding", "Holding quota"], ["settings", "Settings"], ["yaml", "YAML"]];

export function LocalQueues({ parameters, tick }) {
  const answer = useAnswer("localqueues" + query({ ...parameters, limit }), tick);
  return (
    <>
      <h1>LocalQueues</h1>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Filter label="Name" name="text" value={parameters.text} />
        <Filter label="Namespace" name="namespace" value={parameters.namespace} list="namespaces" />
        <Filter label="ClusterQueue" name="clusterQueue" value={parameters.clusterQueue} />
      </form>
      <Answered answer={answer}>
        {(page) => (
          <>
            {page.total === 0 ? <Nothing parameters={parameters} parts={["localqueues"]} none="There are no LocalQueues, or you may not read the quota Workloads of their namespaces." /> : (
              <Scroll label="LocalQueues">
                <table class="cards">
                  <thead>
                    <tr>
                      <th scope="col">Namespace</th><th scope="col">Name</th><th scope="col">ClusterQueue</th><th scope="col" class="number">Pending</th>
                      <th scope="col" class="number">Holding quota</th><th scope="col">Holds</th><th scope="col">Status</th>
                    </tr>
                  </thead>
                  <tbody>{page.items.map((q) => <Row key={q.namespace + "/" + q.name} q={q} />)}</tbody>
                </table>
              </Scroll>
            )}
            <Pager page={page} limit={limit} noun="LocalQueue" />
          </>
        )}
      </Answered>
    </>
  );
}

const status = (q) => [q.stop && `stopped: ${q.stop}`, q.reason && `${q.reason}: ${q.message}`].filter(Boolean).join("; ");

function Row({ q }) {
  return (
    <tr>
      <td data-label="in">{q.namespace}</td>
      <td class="name"><a href={localQueueLink(q.namespace, q.name)}>{q.name}</a></td>
      <td data-label="ClusterQueue">{q.clusterQueue && <a href={queueLink(q.clusterQueue)}>{q.clusterQueue}</a>}</td>
      <td class="number" data-label="pending">{q.pending.toLocaleString("en")}</td>
      <td class="number" data-label="holding quota">{q.holding.toLocaleString("en")}</td>
      <td data-label="holds">{amounts(q.held)}</td>
      <td class="problem">{status(q)}</td>
    </tr>
  );
}

const count = (queue, list) => (queue && queue[list] !== undefined ? ` (${queue[list].toLocaleString("en")})` : "");

export function LocalQueue({ namespace, name, parameters, tick }) {
  const { list = "pending" } = parameters;
  const parts = ["localqueues", namespace, name];
  const path = parts.map(encodeURIComponent).join("/");
  const answer = useAnswer(path, tick);
  return (
    <>
      <p class="crumbs"><a href={to(["localqueues"])}>LocalQueues</a> <a href={to(["localqueues"], { namespace })}>{namespace}</a></p>
      <h1>LocalQueue {name}</h1>
      <Answered answer={answer}>
        {(q) => (
          <>
            <p>
              {q.clusterQueue && <>of ClusterQueue <a href={queueLink(q.clusterQueue)}>{q.clusterQueue}</a>, </>}
              holds {amounts(q.held) || "nothing"}
            </p>
            {status(q) && <p class="problem">{status(q)}</p>}
          </>
        )}
      </Answered>
      <section>
        <Tabs label="Parts of the LocalQueue" tabs={lists.map(([id, title]) => [id, title + count(answer.data, id)])} current={list} link={(id) => to(parts, { ...parameters, list: id, state: "", offset: 0 })} />
        {list === "settings" || list === "yaml"
          ? <Settings path={path} isText={list === "yaml"} />
          : <Workloads parts={parts} list={list} parameters={parameters} tick={tick} />}
      </section>
    </>
  );
}
