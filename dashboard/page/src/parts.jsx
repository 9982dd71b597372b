// Parts that several views have in common.
import { useEffect, useState } from "preact/hooks";
import { ago, amount, clock, listed, plural, startText } from "./format.js";
import { jobSetLink, select, to, turn } from "./route.js";

// Answered shows what f returns for the data of an answer, or why there is none.
export function Answered({ answer, children }) {
  return (
    <>
      {answer.error && <p class="error" role="alert">{answer.error}</p>}
      {answer.data ? children(answer.data) : !answer.error && <p class="quiet" role="status">Reading…</p>}
    </>
  );
}

// Filter is an input that changes a parameter of the view a moment after the last key.
export function Filter({ label, name, value, list }) {
  const [text, setText] = useState(value || "");
  useEffect(() => setText(value || ""), [value]);
  useEffect(() => {
    if (text === (value || "")) {
      return undefined;
    }
    const timer = setTimeout(() => select({ [name]: text }), 250);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <label>
      {label} <input type="search" value={text} list={list} onInput={(e) => setText(e.currentTarget.value)} autocomplete="off" spellcheck={false} />
    </label>
  );
}

export function Choice({ label, name, value, options }) {
  return (
    <label>
      {label}{" "}
      <select value={value || ""} onChange={(e) => select({ [name]: e.currentTarget.value })}>
        <option value="">all</option>
        {options.map((o) => <option key={o} value={o}>{o}</option>)}
      </select>
    </label>
  );
}

export function Pager({ page, limit, noun }) {
  const last = Math.min(page.offset + page.items.length, page.total);
  return (
    <nav class="pager" aria-label={"Pages of " + noun + "s"}>
      <span role="status">{page.total ? `${(page.offset + 1).toLocaleString("en")}–${last.toLocaleString("en")} of ${plural(page.total, noun)}` : `No ${noun}s`}</span>
      <button type="button" id="previous-page" disabled={page.offset === 0} onClick={() => turn(Math.max(0, page.offset - limit))}>Previous</button>
      <button type="button" id="next-page" disabled={last >= page.total} onClick={() => turn(page.offset + limit)}>Next</button>
    </nav>
  );
}

// Scroll lets a wide table move without the page. It takes the focus, so that keys can move it.
export function Scroll({ label, children }) {
  return <div class="scroll" role="region" aria-label={label} tabIndex={0}>{children}</div>;
}

// Nothing is shown in place of an empty table.
export function Nothing({ parameters, parts, none }) {
  const isFiltered = ["text", "namespace", "queue", "clusterQueue", "state", "under"].some((name) => parameters[name]);
  return <p class="nothing">{isFiltered ? <>Nothing matches the filters. <a href={to(parts, { list: parameters.list, sort: parameters.sort })}>Show all</a></> : none}</p>;
}

export function Age({ time }) {
  return <time datetime={time} title={clock(time)}>{ago(time)}</time>;
}

// Start shows when a stage is expected to start.
export function Start({ start }) {
  const { text, title } = startText(start);
  return <span class="start" title={title}>{text}</span>;
}

// State shows a state, and that of the pods that will be preempted: they still run, but not for long.
export function State({ state, reason }) {
  if (!state) {
    return null;
  }
  const hasNotice = reason === "PreemptionPending";
  return <span class={"state state-" + (hasNotice ? "notice" : state.toLowerCase())}>{state}{hasNotice && ", has notice"}</span>;
}

// Message has the reason and the message of a row.
export function Message({ row }) {
  return <><b>{row.reason}</b> {listed(row.message)}</>;
}

// Owner names what a quota Workload is of.
export function Owner({ w }) {
  return (
    <>
      {w.ownerKind === "JobSet" ? <a href={jobSetLink(w.namespace, w.owner)}>{w.namespace}/{w.owner}</a> : <span>{w.namespace}/{w.owner || w.name}</span>}
      {w.stage && <span class="quiet"> stage {w.stage}</span>}
    </>
  );
}

// part returns a width in percent.
export const part = (value, whole) => ({ width: `${whole > 0 ? Math.min(100, (100 * value) / whole) : 0}%` });

// Bars shows the quota of each flavor and resource.
export function Bars({ bars }) {
  return <div class="bars">{bars.map((b) => <Bar key={b.flavor + "/" + b.resource} bar={b} />)}</div>;
}

function Bar({ bar }) {
  const text = (value) => amount(bar.resource, value);
  const whole = Math.max(bar.nominal, bar.used);
  const idle = bar.idle || 0;
  const busy = Math.max(0, bar.used - idle - bar.reserved);
  const isUnlisted = bar.unlisted > 0 && bar.unlisted === bar.used && bar.nominal === 0;
  const facts = [isUnlisted ? `${text(bar.used)} used without quota` : `${text(bar.used)} of ${text(bar.nominal)} used`];
  if (bar.unlisted > 0 && !isUnlisted) {
    facts.push(`${text(bar.unlisted)} without quota`);
  }
  for (const [value, name] of [[idle, "idle"], [bar.reserved, "reserved"], [bar.borrowed, "borrowed"], [bar.lent, "lent"]]) {
    if (value > 0) {
      facts.push(`${text(value)} ${name}`);
    }
  }
  facts.push(`${text(bar.free)} free`);
  for (const [value, name] of [[bar.borrowingLimit, "may borrow"], [bar.lendingLimit, "lends at most"]]) {
    if (value !== undefined) {
      facts.push(`${name} ${text(value)}`);
    }
  }
  const title = `${bar.resource} of flavor ${bar.flavor}: ${facts.join(", ")}`;
  return (
    <div class="bar" title={title}>
      <span class="bar-name" title={`${bar.resource} ${bar.flavor}`}><b>{bar.resource}</b> {bar.flavor}</span>
      <span class={"track" + (bar.used > bar.nominal ? " over" : "")} role="img" aria-label={title}>
        <i class="busy" style={part(busy, whole)} />
        <i class="idle" style={part(idle, whole)} />
        <i class="reserved" style={part(bar.reserved, whole)} />
        <i class="lent" style={part(bar.lent, whole)} />
        {bar.used > bar.nominal && <i class="nominal" style={{ left: part(bar.nominal, whole).width }} />}
      </span>
      <span class="bar-facts">{facts.join(", ")}</span>
    </div>
  );
}

export function Legend() {
  return (
    <p class="legend quiet">
      <span><i class="busy" /> in use</span> <span><i class="idle" /> idle: admitted, pods not all ready</span>{" "}
      <span><i class="reserved" /> reserved: waiting for AdmissionChecks, or kept for later stages</span>{" "}
      <span><i class="lent" /> lent: unused, but used by other queues</span> <span><i class="mark" /> nominal quota</span>{" "}
      <span>free: what one more quota Workload could use now</span>
    </p>
  );
}
