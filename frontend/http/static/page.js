// The page of one framehost: a playground and a live view. No library, no markup from data: every text that comes
// from a person or from the server is set as text.

const $ = (id) => document.getElementById(id);
const POLL_MS = 2000;
const TYPING_MS = 350;
const KEY = "framehost.key";

/** An element with properties (and aria-, data- attributes) and children; a string child is text. */
function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-")) made.setAttribute(name, value);
    else made[name] = value;
  }
  made.append(...children);
  return made;
}

// Questions: the model behind the form, drawn anew when its shape changes and read on every keystroke.

const EXAMPLE = {
  state: "Customer: I was charged twice for my order last week. Please give me my money back!",
  questions: [
    { id: "team", type: "choice", ask: "", options: [
      ["billing", "a charge, an invoice, a payment or a refund"],
      ["technical", "an error, a crash, something is broken"],
      ["sales", "prices, plans, buying more"] ] },
    { id: "refund", type: "noul", ask: "",
      sides: ["the customer wants a refund", "the customer asks how something works"] },
    { id: "harm", type: "score", ask: "", levels: [
      "small: a question", "medium: something does not work", "large: money was lost or charged wrongly"] },
  ],
};
const TYPES = [["choice", "choice"], ["noul", "yes or no"], ["score", "score"]];

let questions = [];
let serial = 0;

function question(given = {}) {
  serial += 1;
  return {
    key: serial, id: `question-${serial}`, type: "choice", ask: "",
    options: [["", ""], ["", ""]], sides: ["", ""], levels: ["", ""], ...given,
  };
}

/** A labelled input that writes into its question. */
function field(label, id, value, write, properties = {}) {
  const input = element("input", { id, value, ...properties });
  input.addEventListener("input", () => { write(input.value); changed(); });
  return [element("label", { htmlFor: id }, label), input];
}

function bare(label, value, write) {
  const input = element("input", { value, "aria-label": label });
  input.addEventListener("input", () => { write(input.value); changed(); });
  return input;
}

/** Something was added or taken away: draw, and put the focus where the next key belongs. */
function reshaped(focus) {
  draw();
  document.querySelector(focus)?.focus();
  changed();
}

function removal(list, index, name, container, least) {
  const button = element("button", { type: "button", className: "small", "aria-label": `Remove ${name}` }, "×");
  button.disabled = list.length <= least;
  button.addEventListener("click", () => {
    list.splice(index, 1);
    reshaped(`${container} .option:nth-of-type(${Math.min(index, list.length - 1) + 1}) input`);
  });
  return button;
}

/** The rows of a question's criteria, and the buttons below them. */
function criteria(one, box) {
  const rows = element("div", { id: `${box}-rows` });
  const add = (list, made, what) => {
    const button = element("button", { type: "button" }, `Add ${what}`);
    button.addEventListener("click", () => {
      list.push(made());
      reshaped(`#${box}-rows .option:nth-of-type(${list.length}) input`);
    });
    return button;
  };
  if (one.type === "choice") {
    one.options.forEach((option, index) => rows.append(element("div", { className: "option" },
      bare(`Name of option ${index + 1}`, option[0], (text) => { option[0] = text; }),
      bare(`Description of option ${index + 1}`, option[1], (text) => { option[1] = text; }),
      removal(one.options, index, `option ${index + 1}`, `#${box}-rows`, 1))));
    return [rows, [add(one.options, () => ["", ""], "an option")]];
  }
  if (one.type === "score") {
    one.levels.forEach((level, index) => rows.append(element("div", { className: "option alone" },
      bare(`Level ${index}`, level, (text) => { one.levels[index] = text; }),
      removal(one.levels, index, `level ${index}`, `#${box}-rows`, 1))));
    return [rows, [add(one.levels, () => "", "a level")]];
  }
  ["yes", "no"].forEach((side, index) => rows.append(element("div", { className: "option named" },
    element("span", { "aria-hidden": "true" }, side),
    bare(`What ${side} means`, one.sides[index], (text) => { one.sides[index] = text; }))));
  return [rows, []];
}

function draw() {
  $("questions").replaceChildren(...questions.map((one, index) => {
    const box = `q${one.key}`;
    const type = element("select", { id: `${box}-type` },
      ...TYPES.map(([value, label]) => element("option", { value }, label)));
    type.value = one.type;
    type.addEventListener("change", () => { one.type = type.value; reshaped(`#${box}-type`); });
    const remove = element("button", { type: "button" }, `Remove question ${index + 1}`);
    remove.disabled = questions.length === 1;
    remove.addEventListener("click", () => {
      questions.splice(index, 1);
      reshaped(`#q${questions[Math.min(index, questions.length - 1)].key}-id`);
    });
    const [idLabel, id] = field("Id", `${box}-id`, one.id, (text) => { one.id = text; });
    const [askLabel, ask] = field("Instructions", `${box}-ask`, one.ask, (text) => { one.ask = text; },
      { placeholder: one.type === "noul" ? "Is the customer angry?" : "Which team answers?" });
    const [rows, buttons] = criteria(one, box);
    return element("fieldset", { id: box },
      element("legend", {}, `Question ${index + 1}`),
      element("div", { className: "pair" },
        element("div", {}, idLabel, id),
        element("div", {}, element("label", { htmlFor: type.id }, "Type"), type)),
      askLabel, ask, rows, element("div", { className: "row" }, ...buttons, remove));
  }));
}

// The request. Written by hand as far as the client's own names are keys: an object would sort "10" before "9".

const quoted = JSON.stringify;
const pairs = (list) => `{${list.map(([name, value]) => `${quoted(name)}: ${value}`).join(", ")}}`;

function wire(one) {
  const parts = [["type", quoted(one.type)]];
  if (one.ask) parts.push(["instructions", quoted(one.ask)]);
  if (one.type === "choice") {
    parts.push(["criteria", pairs(one.options.map(([name, text]) => [name, text ? quoted(text) : "null"]))]);
  } else if (one.type === "score") {
    parts.push(["criteria", `[${one.levels.map(quoted).join(", ")}]`]);
  } else {
    const sides = [["true", one.sides[0]], ["false", one.sides[1]]].filter(([, text]) => text);
    if (sides.length) parts.push(["criteria", pairs(sides.map(([name, text]) => [name, quoted(text)]))]);
  }
  return pairs(parts);
}

function state() {
  const text = $("state").value;
  try {
    const value = JSON.parse(text);
    if (typeof value === "object" && value !== null) return text;
  } catch { /* a text, as most states are */ }
  return quoted(text);
}

function body() {
  const lines = questions.map((one) => `    ${quoted(one.id)}: ${wire(one)}`);
  return `{\n  "model": ${quoted($("model").value)},\n  "state": ${state()},\n  "questions": {\n${lines.join(",\n")}\n  }\n}`;
}

// The same from a program

let language = "curl";

/** Neither three quotes in a row nor a line END can be in a JSON document, so it needs no escapes in these. */
function program(content) {
  // Beside this page, wherever a proxy has put it.
  const url = new URL("v1/systemone", location.origin + location.pathname).href;
  const key = sessionStorage.getItem(KEY);
  if (language === "curl") {
    const header = key ? ` -H "Authorization: Bearer $FRAMEHOST_API_KEY"` : "";
    return `curl -s ${url}${header} -d @- <<'END'\n${content}\nEND`;
  }
  const headers = key ? `{"Authorization": "Bearer " + os.environ["FRAMEHOST_API_KEY"]}` : "{}";
  return [
    "import json", ...(key ? ["import os"] : []), "import urllib.request", "",
    `body = json.loads(r"""${content}""")`,
    `request = urllib.request.Request(${quoted(url)}, json.dumps(body).encode(), ${headers})`,
    "with urllib.request.urlopen(request) as response:", "    answers = json.load(response)[\"answers\"]",
    "for name, answer in answers.items():", "    print(name, answer)",
  ].join("\n");
}

// Asking

let asking = null;
let timer = 0;

function changed() {
  $("code").textContent = program(body());
  clearTimeout(timer);
  if ($("live").checked && complete()) timer = setTimeout(ask, TYPING_MS);
}

/** Whether everything has the words it needs. Only whoever asks on purpose is told by the server what is missing. */
function complete() {
  return questions.every((one) => one.id && {
    choice: () => one.options.every(([name]) => name),
    score: () => one.levels.every((text) => text),
    noul: () => one.ask || one.sides.some((text) => text),
  }[one.type]());
}

function headers() {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** The document of an answer, or an Error with what the server said. A key that is missing shows its field. */
async function fetched(path, options = {}) {
  if (/[^ -~]/.test(sessionStorage.getItem(KEY) ?? "")) throw new Error("the API key is not one line of ASCII");
  const response = await fetch(path, { ...options, headers: headers() });
  const text = await response.text();
  let document_ = null;
  try { document_ = JSON.parse(text); } catch { /* said below */ }
  if (response.status === 401) $("key-form").hidden = false;
  if (!response.ok || document_ === null) throw new Error(said(response.status, document_));
  return { document: document_, headers: response.headers };
}

function said(status, content) {
  const detail = content?.detail;
  if (Array.isArray(detail)) return `${status}: ${detail.map((one) => `${one.loc.slice(1).join(", ")}: ${one.msg}`).join("; ")}`;
  return `${status}: ${detail?.message ?? content?.error?.message ?? "the server gave no reason"}`;
}

async function ask() {
  clearTimeout(timer);
  asking?.abort();
  const mine = asking = new AbortController();
  const asked = structuredClone(questions);
  const begun = performance.now();
  try {
    const answer = await fetched("v1/systemone", { method: "POST", body: body(), signal: mine.signal });
    $("error").hidden = true;
    show(asked, answer.document, performance.now() - begun, answer.headers.get("Server-Timing"));
  } catch (error) {
    if (mine.signal.aborted) return;
    $("error").textContent = error instanceof TypeError ? "The server cannot be reached." : error.message;
    $("error").hidden = false;
  }
}

const percent = (p) => `${(100 * p).toFixed(1)} %`;

/** What a question's answer is, and a row per candidate in the order it was asked in. */
function reading(one, answer) {
  if (one.type === "noul") {
    return [`${answer.noul >= 0.5 ? "yes" : "no"}`, [["yes", answer.noul], ["no", 1 - answer.noul]]];
  }
  if (one.type === "choice") {
    return [answer.choice, one.options.map(([name]) => [name, answer.probabilities[name]])];
  }
  return [answer.score.toFixed(2), one.levels.map((text, index) => [`${index}: ${text}`, answer.probabilities[index]])];
}

function show(asked, response, elapsed, timing) {
  const spoken = [];
  $("answers").replaceChildren(...asked.map((one) => {
    const answer = response.answers[one.id];
    const [head, rows] = reading(one, answer);
    const best = Math.max(...rows.map(([, p]) => p));
    const note = answer.confidence === undefined ? "" : `, confidence ${answer.confidence.toFixed(2)}`;
    spoken.push(`${one.id}: ${head}`);
    return element("div", { className: "answer" },
      element("h3", {}, `${one.id}: ${head}`, element("span", { className: "note" }, note)),
      element("table", { "aria-label": `Probabilities of ${one.id}` }, element("tbody", {}, ...rows.map(([name, p]) => {
        const fill = element("div");
        fill.style.width = `${100 * p}%`;
        return element("tr", { className: p === best ? "best" : "" },
          element("th", { scope: "row" }, name),
          element("td", {}, element("div", { className: "bar", "aria-hidden": "true" }, fill)),
          element("td", { className: "number" }, percent(p)));
      }))));
  }));
  const parts = (timing ?? "").split(", ").map((part) => part.split(";dur=")).filter((part) => part.length === 2);
  $("cost").textContent = [
    response.model, `${response.usage.input_tokens} tokens`, `${elapsed.toFixed(1)} ms from here`,
    ...parts.map(([name, time]) => `${name} ${Number(time).toFixed(2)} ms`),
  ].join(" · ");
  $("spoken").textContent = spoken.join("; ");
}

// The live view

const MIB = 2 ** 20;
const TONES = { ready: "good", ok: "good", loading: "warn", warming: "warn", restarting: "warn", degraded: "warn", absent: "" };
const tone = (word) => TONES[word] ?? "bad";

function hostText(host) {
  const progress = host.progress && host.state !== "ready" ? ` ${Math.round(100 * (host.progress.fraction ?? 0))} %` : "";
  const role = host.role === "current" ? "" : ` (${host.role})`;
  return `${host.state}${progress}${role}`;
}

function modelRow(model) {
  const hosts = model.hosts.length ? model.hosts : [{ state: "none", role: "current", rss_bytes: 0, restarts: 0 }];
  const bounds = model.bounds.map((bound) => `${bound.used} of ${bound.limit} ${bound.name}`).join(", ") || "no bound";
  const left = model.queue.abandoned ? " (its client has left)" : "";
  return element("tr", {},
    element("th", { scope: "row" }, model.name, element("span", { className: "note" }, ` ${model.family}`)),
    element("td", { className: tone(model.state) }, model.state),
    ...[model.queue.waiting, `${model.queue.running}${left}`, model.completed, model.failed, bounds,
      hosts.map(hostText).join(", "), hosts.map((host) => `${Math.round(host.rss_bytes / MIB)} MiB`).join(", "),
      hosts.map((host) => host.restarts).join(", ")].map((text) => element("td", {}, String(text))));
}

/** A screen reader speaks what is set here, so it is set only when it changes. */
function health(word, tone) {
  if ($("health").textContent !== word) $("health").textContent = word;
  $("health").className = `pill ${tone}`;
}

async function look() {
  try {
    const { document: now } = await fetched("status");
    health(now.status, tone(now.status));
    if (!$("model").options.length) begin();  // it could not be reached when the page was opened
    document.querySelector("#models tbody").replaceChildren(...now.models.map(modelRow));
    const deaths = now.deaths.map((death) => element("li", {},
      element("time", { dateTime: new Date(1000 * death.at).toISOString() }, new Date(1000 * death.at).toLocaleTimeString()),
      ` ${death.who}: ${death.how}`));
    $("deaths").replaceChildren(...(deaths.length ? deaths : [element("li", {}, "none since the start")]));
    const ended = Object.entries(now.requests.ended).map(([name, count]) => `${count} ${name}`).join(", ");
    $("live-note").textContent =
      `${now.requests.open} open requests; ${ended || "none have ended"}. Up ${Math.round(now.uptime_s)} s.`;
  } catch (error) {
    const away = error instanceof TypeError;
    health(away ? "not reachable" : "key needed", "bad");
    $("live-note").textContent = away ? "The server cannot be reached; what is below is old." : error.message;
  }
}

async function follow() {
  if ($("pause").ariaPressed !== "true" && !document.hidden) await look();
  setTimeout(follow, POLL_MS);
}

/** The names to choose from; the server's default is chosen until a person chooses. */
async function loadModels() {
  const [{ document: listed }, { document: preset }] =
    await Promise.all([fetched("v1/models"), fetched("v1/models/jev-latest")]);
  const before = $("model").value;
  $("model").replaceChildren(...listed.models.map((model) => element("option", { value: model.name }, model.name)));
  $("model").value = before || preset.name;
}

async function begin() {
  try { await loadModels(); } catch (error) {
    if (!$("key-form").hidden) $("key").focus();
    return;
  }
  changed();
}

$("state").value = EXAMPLE.state;
questions = EXAMPLE.questions.map(question);
draw();
$("ask").addEventListener("submit", (event) => { event.preventDefault(); ask(); });
$("ask").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); ask(); }
});
for (const id of ["state", "model"]) $(id).addEventListener("input", changed);
$("add-question").addEventListener("click", () => {
  const made = question();
  questions.push(made);
  reshaped(`#q${made.key}-id`);
});
for (const name of ["curl", "python"]) {
  $(`show-${name}`).addEventListener("click", () => {
    language = name;
    for (const other of ["curl", "python"]) $(`show-${other}`).ariaPressed = String(other === name);
    $("code").textContent = program(body());
  });
}
$("copy").hidden = !navigator.clipboard;  // browsers have none for plain http from another machine
$("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText($("code").textContent);
  $("spoken").textContent = "copied";
});
$("pause").addEventListener("click", () => {
  $("pause").ariaPressed = String($("pause").ariaPressed !== "true");
});
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("key").value.trim());
  $("key").value = "";
  begin();
  look();
});
$("key-form").hidden = !sessionStorage.getItem(KEY);
$("code").textContent = program(body());
begin();
follow();
