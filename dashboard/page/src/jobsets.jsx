// The list of JobSets.
import { query, useAnswer } from "./api.js";
import { amounts } from "./format.js";
import { Age, Answered, Choice, Filter, Nothing, Pager, Scroll, Start, State } from "./parts.jsx";
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
            {page.total === 0 ? <Nothing parameters={parameters} parts={["jobsets"]} none="There are no JobSets, or you may not read them." /> : (
              <Scroll label="JobSets">
                <table class="cards">
                  <thead>
                    <tr>
                      <th scope="col">Namespace</th><th scope="col">Name</th><th scope="col">ClusterQueue</th><th scope="col">State</th><th scope="col" class="number">Age</th>
                      <th scope="col" class="number">Restarts</th><th scope="col">Stages</th><th scope="col">Holds</th><th scope="col">Asks for</th><th scope="col">Expected start</th><th scope="col">Reason</th>
                    </tr>
                  </thead>
                  <tbody>{page.items.map((js) => <Row key={js.namespace + "/" + js.name} js={js} />)}</tbody>
                </table>
              </Scroll>
            )}
            <Pager page={page} limit={limit} noun="JobSet" />
            {page.hidden > 0 && <p class="quiet">{page.hidden.toLocaleString("en")} more in namespaces that you may not read.</p>}
          </>
        )}
      </Answered>
    </>
  );
}

function Row({ js }) {
  return (
    <tr>
      <td data-label="in">{js.namespace}</td>
      <td class="name"><a href={jobSetLink(js.namespace, js.name)}>{js.name}</a></td>
      <td data-label="ClusterQueue">{js.clusterQueue && <a href={queueLink(js.clusterQueue)}>{js.clusterQueue}</a>}</td>
      <td><State state={js.state} reason={js.reason} /></td>
      <td class="number" data-label="old"><Age time={js.created} /></td>
      <td class="number" data-label="restarts">{js.restarts || 0}</td>
      <td data-label="stages">{js.progress}</td>
      <td data-label="holds">{amounts(js.held)}</td>
      <td data-label="asks for">{js.asks && <>{amounts(js.asks)} <span class="quiet">for <Age time={js.waitingSince} /></span></>}</td>
      <td data-label="expected start">{js.state === "Waiting" && <Start start={js.expectedStart} />}</td>
      <td class="message"><b>{js.reason}</b> {js.message}</td>
    </tr>
  );
}
