// Amounts and times for readers.

const binary = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];

// amount formats an amount in CPUs, bytes or pieces.
export function amount(resource, value) {
  if (value === null || value === undefined) {
    return "–";
  }
  if (value >= 2 ** 62) {
    return "no limit";
  }
  let unit = "";
  if (resource === "memory" || resource === "ephemeral-storage" || resource.startsWith("hugepages-")) {
    let step = 0;
    for (; Math.abs(value) >= 1024 && step < binary.length - 1; step++) {
      value /= 1024;
    }
    unit = binary[step];
  }
  return Number(value.toFixed(value < 10 ? 2 : 1)).toLocaleString("en") + unit;
}

export function duration(seconds) {
  seconds = Math.max(0, Math.round(seconds));
  const parts = [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]];
  for (let i = 0; i < parts.length; i++) {
    const [size, unit] = parts[i];
    if (seconds >= size || size === 1) {
      const rest = parts[i + 1] && Math.floor((seconds % size) / parts[i + 1][0]);
      return Math.floor(seconds / size) + unit + (rest ? " " + rest + parts[i + 1][1] : "");
    }
  }
}

// The page shows a cluster as of now, or a snapshot as of when it was taken.
let taken;

export function showAsOf(time) {
  taken = time;
}

const present = () => (taken ? new Date(taken) : new Date());

export function ago(time) {
  return time ? duration((present() - new Date(time)) / 1000) : "–";
}

export function clock(time) {
  return new Date(time).toLocaleString("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit", day: "2-digit", month: "short" });
}

// minute formats a time without seconds, and without the day if it is today.
export function minute(time) {
  const t = new Date(time);
  const day = t.toDateString() === present().toDateString() ? {} : { day: "2-digit", month: "short" };
  return t.toLocaleString("en-GB", { hour: "2-digit", minute: "2-digit", ...day });
}

// startText formats an expected start, or why there is none. The title has the exact times.
export function startText(start) {
  if (!start) {
    return { text: "–", title: "The manager has written no expected start" };
  }
  if (start.certainty === "Unknown") {
    return { text: "unknown", title: start.basis || "The view of the JobSet has the reason" };
  }
  if (!start.about && !start.by) {
    return { text: "–", title: "The start was not predicted" };
  }
  const both = [["about", start.about], ["by", start.by]].filter(([, time]) => time);
  const isOverdue = both.every(([, time]) => new Date(time) < present());
  return {
    text: both.map(([word, time]) => `${word} ${minute(time)}`).join(", ") + (isOverdue ? ", overdue" : ""),
    title: both.map(([word, time]) => `${word} ${clock(time)}`).join(", ") + (start.by ? "; by: if all stages run to their limits" : ""),
  };
}

// localTimes returns a text with its times in the time zone of the browser.
export const localTimes = (text) => (text || "").replace(/\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z/g, clock);

// listed returns a message as a list shows it: without UIDs, which name no object to its reader.
export const listed = (text) => localTimes(text).replace(/ \((Job)?UID: [^)]*\)/g, "");

export const amounts = (list) => (list || []).map((a) => `${a.amount} ${a.resource}${a.flavor ? " of " + a.flavor : ""}`).join(", ");

export const plural = (n, noun) => `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
