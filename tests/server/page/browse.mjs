// Opens a page in a headless Chromium, waits until it has been told something a few times, and writes down as JSON what stands
// there: numbers, tables, names for screen readers; what went wrong; what was loaded.
//
//     node browse.mjs BROWSER URL [--login USER:PASSWORD] [--pictures FOLDER --after SECONDS]
//
// It speaks the browser's own protocol over a pair of pipes, so it needs no package.

import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [browser, url, ...options] = process.argv.slice(2);
const option = name => options.includes(name) ? options[options.indexOf(name) + 1] : undefined;
const login = option("--login"), pictures = option("--pictures"), after_s = Number(option("--after") ?? 0);
const POLLS = 4, PATIENCE_MS = 60_000;
const WIDE = { width: 1200, height: 1000 }, PHONE = { width: 360, height: 780 };

const profile = mkdtempSync(join(tmpdir(), "page-"));
const child = spawn(browser, [
  "--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--font-render-hinting=none",
  "--disable-background-networking", "--disable-component-update", "--no-first-run", `--user-data-dir=${profile}`, "about:blank",
], { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
const [, , , to, from] = child.stdio;

let next = 1, rest = Buffer.alloc(0);
const answers = new Map(), listeners = new Map();
from.on("data", bytes => {
  rest = Buffer.concat([rest, bytes]);
  for (let end; (end = rest.indexOf(0)) >= 0; rest = rest.subarray(end + 1)) {
    const { id, result, error, method, params } = JSON.parse(rest.subarray(0, end));
    if (id === undefined) {
      listeners.get(method)?.(params);
      continue;
    }
    const { resolve, reject } = answers.get(id);
    answers.delete(id);
    error ? reject(new Error(error.message)) : resolve(result);
  }
});
const ended = new Promise((_, reject) => child.on("exit", code => reject(new Error(`the browser ended: ${code}`))));
ended.catch(() => {});

function call(method, params = {}, sessionId) {
  const id = next++;
  to.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
  return Promise.race([ended, new Promise((resolve, reject) => answers.set(id, { resolve, reject }))]);
}

const wait = ms => new Promise(resolve => setTimeout(resolve, ms));

async function browse() {
  const { targetId } = await call("Target.createTarget", { url: "about:blank" });
  const { sessionId } = await call("Target.attachToTarget", { targetId, flatten: true });
  const ask = (method, params) => call(method, params, sessionId);
  const evaluate = async expression => {
    const { result, exceptionDetails } = await ask("Runtime.evaluate", { expression, returnByValue: true, awaitPromise: true });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  const until = async (what, expression) => {
    for (const end = Date.now() + PATIENCE_MS; Date.now() < end; await wait(100)) {
      if (await evaluate(expression)) return;
    }
    throw new Error(`${what}: ${await evaluate("document.body?.innerText.slice(0, 300)")}`);
  };

  const wrong = [], loaded = [];
  listeners.set("Runtime.exceptionThrown", ({ exceptionDetails: { text, exception } }) => wrong.push(exception?.description ?? text));
  listeners.set("Runtime.consoleAPICalled", ({ type, args }) => wrong.push(`${type}: ${args.map(arg => arg.value).join(" ")}`));
  listeners.set("Log.entryAdded", ({ entry }) => wrong.push(`${entry.level}: ${entry.text} ${entry.url ?? ""}`));
  listeners.set("Network.requestWillBeSent", ({ request }) => loaded.push(request.url));
  let asked = 0;
  if (login) {
    const [username, password] = [login.slice(0, login.indexOf(":")), login.slice(login.indexOf(":") + 1)];
    listeners.set("Fetch.requestPaused", ({ requestId }) => ask("Fetch.continueRequest", { requestId }));
    listeners.set("Fetch.authRequired", ({ requestId }) => {
      asked++;
      const authChallengeResponse = { response: "ProvideCredentials", username, password };
      ask("Fetch.continueWithAuth", { requestId, authChallengeResponse });
    });
    await ask("Fetch.enable", { handleAuthRequests: true });
  }
  for (const domain of ["Page", "Runtime", "Log", "Network", "Accessibility"]) await ask(`${domain}.enable`);

  const look = (size, scheme, more = []) => Promise.all([
    ask("Emulation.setDeviceMetricsOverride", { ...size, deviceScaleFactor: 1, mobile: size === PHONE }),
    ask("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }, ...more] }),
  ]);
  // Until the page has been told something so many times more.
  const told = async times => {
    for (; times > 0; times--) {
      const at = await evaluate("document.body.dataset.atMs ?? ''");
      await until("it is told nothing", `(document.body.dataset.atMs ?? '') !== '${at}'`);
    }
  };

  await look(WIDE, "light");
  await ask("Page.navigate", { url });
  await until("there is no page", "document.querySelector('main') !== null");
  await told(POLLS);
  await wait(after_s * 1000);

  const read = () => evaluate(`({
    numbers: Object.fromEntries([...document.querySelectorAll("[data-fact], data[id]")].map(at =>
      [at.dataset.fact ?? at.id, { text: at.textContent, value: at.value ?? at.textContent }])),
    tables: Object.fromEntries([...document.querySelectorAll("tbody[id]")].map(body =>
      [body.id, [...body.rows].map(row => [...row.cells].map(cell => cell.querySelector("data")?.value ?? cell.textContent))])),
    texts: Object.fromEntries([...document.querySelectorAll("[id$=-text], #state, #what")].map(at => [at.id, at.textContent])),
    pictures: [...document.querySelectorAll("svg")].map(svg => [svg.id, svg.querySelectorAll("path[d*=L], rect").length]),
    headings: [...document.querySelectorAll("h1, h2")].map(at => at.tagName + " " + at.textContent),
  })`);
  const page = await read();

  // The two differ by what is wider than the window.
  const overflow = {};
  for (const width of [320, 360, 768, 1280]) {
    await look({ ...PHONE, width }, "light");
    await told(1);
    overflow[width] = await evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth");
  }

  // What a screen reader is told of; all that has to have a name.
  const { nodes } = await ask("Accessibility.getFullAXTree");
  const named = ["image", "img", "table", "button", "link", "region", "graphics-document"];
  const nameless = nodes.filter(node => !node.ignored && named.includes(node.role?.value) && !node.name?.value?.trim());
  const landmarks = nodes.filter(node => !node.ignored).map(node => node.role?.value)
    .filter(role => ["banner", "main", "contentinfo", "status"].includes(role));

  // With the keyboard alone: to the numbers, and to the pause.
  const press = async (key, code, text) => {
    await ask("Input.dispatchKeyEvent", { type: "keyDown", key, code: key, windowsVirtualKeyCode: code, text });
    await ask("Input.dispatchKeyEvent", { type: "keyUp", key, code: key, windowsVirtualKeyCode: code });
  };
  const focused = () => evaluate("document.activeElement.id || document.activeElement.className || document.activeElement.tagName");
  const keyboard = [];
  for (const _ of [1, 2]) {
    await press("Tab", 9);
    keyboard.push(await focused());
  }
  await press("Enter", 13, "\r");
  keyboard.push(await evaluate("document.getElementById('state').textContent"));
  await press("Enter", 13, "\r");
  await until("it does not go on", "document.getElementById('state').textContent === 'Live'");

  // In calm it is drawn more seldom, and still told.
  await look(WIDE, "light", [{ name: "prefers-reduced-motion", value: "reduce" }]);
  await told(2);

  await evaluate("document.activeElement.blur()");
  const clip = size => ({ clip: { x: 0, y: 0, ...size, scale: 1 }, captureBeyondViewport: true });
  for (const [name, size, scheme] of [["desktop", WIDE, "light"], ["dark", WIDE, "dark"], ["phone", PHONE, "light"]]) {
    if (!pictures) break;
    await look(size, scheme);
    await told(2);
    const last = `document.getElementById("${size === PHONE ? "h-next" : "h-shards"}").parentNode`;
    const whole = { width: size.width, height: await evaluate(`Math.ceil(${last}.getBoundingClientRect().bottom + scrollY) + 12`) };
    const { data } = await ask("Page.captureScreenshot", { format: "png", optimizeForSpeed: false, ...clip(whole) });
    writeFileSync(join(pictures, `live-page-${name}.png`), Buffer.from(data, "base64"));
  }
  return { page, overflow, nameless: nameless.map(node => node.role.value), landmarks, keyboard, wrong, loaded: [...new Set(loaded)], asked };
}

let failed = false;
try {
  console.log(JSON.stringify(await browse()));
} catch (error) {
  console.error(error);
  failed = true;
} finally {
  child.removeAllListeners("exit");
  child.kill("SIGKILL");
  child.on("exit", () => {
    rmSync(profile, { recursive: true, force: true, maxRetries: 5 });
    process.exit(failed ? 1 : 0);
  });
}
