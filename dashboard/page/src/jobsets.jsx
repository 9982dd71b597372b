// The list of JobSets.
import { useRef } from "preact/hooks";
import { query, useAnswer } from "./api.js";
import { amounts } from "./format.js";
import { Age, Answered, Choice, Filter, Message, Nothing, Pager, Scroll, Start, State } from "./parts.jsx";
import { jobSetLink, queueLink, select, to } from "./route.js";

const limit = 50;
// The columns have the names by which the server sorts. The first click on a number begins with the largest.
const columns = [
  ["namespace", "Namespace"], ["name", "Name"], ["clusterQueue", "ClusterQueue"], ["state", "State"], ["age", "Age", { number: true }],
  ["restarts", "Restarts", { number: true, largest: true }], ["stages", "Stages"], ["holds", "Holds", { largest: true }], ["asks", "Asks for", { largest: true }],
  ["start", "Expected start"], ["reason", "Reason"],
];

export function JobSets({ parameters, tick, states }) {
  const answer = useAnswer("jobsets" + query({ ...parameters, limit }), tick);
  // The list stays until its other order or page is read, so that the header keeps the focus.
  const { sort, offset, ...filters } = parameters;
  const list = query(filters);
  const shown = useRef({});
  if (answer.data) {
    shown.current = { list, data: answer.data };
  }
  const data = shown.current.list === list ? shown.current.data : undefined;
  return (
    <>
      <h1>JobSets</h1>
      <form class="filters" onSubmit={(e) => e.preventDefault()}>
        <Filter label="Name" name="text" value={parameters.text} />
        <Filter label="Namespace" name="namespace" value={parameters.namespace} list="namespaces" />
        <Filter label="LocalQueue" name="queue" value={parameters.queue} />
        <Filter label="ClusterQueue" name="clusterQueue" value={parameters.clusterQueue} />
        <Choice label="State" name="state" value={parameters.state} options={states || []} />
        <Order sort={sort} />
      </form>
      <Answered answer={{ data, ...answer }}>
        {(page) => (
          <>
            <Totals page={page} />
            {sort && <p class="quiet">Sorted by {(columns.find(([name]) => name === sort.replace(/^-/, "")) || [])[1]}. <a href={to(["jobsets"], filters)}>What needs attention first</a></p>}
            {page.total === 0 ? <Nothing parameters={parameters} parts={["jobsets"]} none="There are no JobSets, or you may not read them." /> : (
              <Scroll label="JobSets">
                <table class="cards">
                  <thead>
                    <tr>{columns.map(([name, label, kind]) => <Sorted key={name} name={name} label={label} sort={sort} {...kind} />)}</tr>
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

// Totals has what all JobSets that match are and hold.
function Totals({ page }) {
  const states = Object.entries(page.states || {}).map(([state, n]) => `${n.toLocaleString("en")} ${state}`);
  return states.length > 0 && <p id="totals">{states.join(", ")}{page.held && `; they hold ${amounts(page.held)}`}</p>;
}

// Order sorts the list where there is no header: in a narrow window.
function Order({ sort }) {
  return (
    <label class="order">
      Sort by{" "}
      <select value={sort || ""} onChange={(e) => select({ sort: e.currentTarget.value })}>
        <option value="">what needs attention first</option>
        {columns.flatMap(([name, label]) => [<option key={name} value={name}>{label}, ascending</option>, <option key={"-" + name} value={"-" + name}>{label}, descending</option>])}
      </select>
    </label>
  );
}

// Sorted is the header of a column by which a click sorts the list. A second click reverses the order.
function Sorted({ name, label, sort, number, largest }) {
  const first = (largest ? "-" : "") + name;
  const order = sort === name ? "ascending" : sort === "-" + name ? "descending" : "none";
  return (
    <th scope="col" class={number ? "number" : undefined} aria-sort={order}>
      <button type="button" class="sort" onClick={() => select({ sort: sort !== first ? first : largest ? name : "-" + name })}>
        {label}<span aria-hidden="true">{{ ascending: " ▲", descending: " ▼" }[order]}</span>
      </button>
    </th>
  );
}

function Row({ js }) {
  return (
    <tr>
      <td data-label="in">{js.namespace}</td>
      <td class="name"><a href={jobSetLink(js.namespace, js.name)}>{js.name}</a></td>
      <td data-label="ClusterQueue">{js.clusterQueue && <a href={queueLink(js.clusterQueue)}>{js.clusterQueue}</a>}</td>
      <td><State state={js.state} reason={js.reason} />{js.position !== undefined && <span class="quiet" title="in its ClusterQueue, 0 is next"> position {js.position.toLocaleString("en")}</span>}</td>
      <td class="number" data-label="old"><Age time={js.created} /></td>
      <td class="number" data-label="restarts">{js.restarts || 0}</td>
      <td data-label="stages">{js.progress}</td>
      <td data-label="holds">{amounts(js.held)}</td>
      <td data-label="asks for">{js.asks && <>{amounts(js.asks)} <span class="quiet">for <Age time={js.waitingSince} /></span></>}</td>
      <td data-label="expected start">{js.state === "Waiting" && <Start start={js.expectedStart} />}</td>
      <td class="message"><Message row={js} /></td>
    </tr>
  );
}
