// The list of JobSets.
import { query, useAnswer } from "./api.js";
import { ago } from "./format.js";
import { Answered, Choice, Filter, Pager, State } from "./parts.jsx";
import { jobSetLink, queueLink } from "./route.js";

const limit = 50;

export function JobSets({ parameters, tick, states }) {
  const answer = useAnswer("jobsets" + query({ ...parameters, limit }), tick);
  return (
    <>
      <h1>JobSets</h1>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Filter label="Name" name="text" value={parameters.text} />
        <Filter label="Namespace" name="namespace" value={parameters.namespace} list="namespaces" />
        <Filter label="LocalQueue" name="queue" value={parameters.queue} />
        <Filter label="ClusterQueue" name="clusterQueue" value={parameters.clusterQueue} />
        <Choice label="State" name="state" value={parameters.state} options={states || []} />
      </form>
      <Answered answer={answer}>
        {(page) => (
          <>
            <table>
              <thead><tr><th>Namespace</th><th>Name</th><th>ClusterQueue</th><th>State</th><th class="number">Age</th><th class="number">Restarts</th><th>Stages</th><th>Reason</th></tr></thead>
              <tbody>
                {page.items.map((js) => (
                  <tr key={js.namespace + "/" + js.name}>
                    <td>{js.namespace}</td>
                    <td><a href={jobSetLink(js.namespace, js.name)}>{js.name}</a></td>
                    <td>{js.clusterQueue && <a href={queueLink(js.clusterQueue)}>{js.clusterQueue}</a>}</td>
                    <td><State state={js.state} /></td>
                    <td class="number"><time datetime={js.created} title={js.created}>{ago(js.created)}</time></td>
                    <td class="number">{js.restarts || 0}</td>
                    <td>{js.progress}</td>
                    <td class="message"><b>{js.reason}</b> {js.message}</td>
                  </tr>
                ))}
              </tbody>
            </table>
            <Pager page={page} limit={limit} noun="JobSet" />
            {page.hidden > 0 && <p class="quiet">{page.hidden.toLocaleString("en")} more in namespaces that you may not read.</p>}
          </>
        )}
      </Answered>
    </>
  );
}
