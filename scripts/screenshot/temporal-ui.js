// Takes pictures of the Temporal Web UI while a large dispatch is in flight: its
// timeline and its details several times, the list of dispatches once. Those in
// docs/images are the ones that show most. It changes nothing on the server:
//
//   laneway dev
//   seq -f member-%06g 100000 | laneway group import - --group all-hands
//   npm install && node temporal-ui.js &
//   for i in 1 2 3 4; do laneway send --from member-000001 --group all-hands --body "hello $i"; done
//
// Send when it says so and after the import's own dispatch. It needs Chromium;
// the font Inter (as the sans-serif of fontconfig) and pngquant make the pictures
// better and smaller.
'use strict';

const { parseArgs } = require('node:util');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { chromium } = require('playwright-core');

const { values: args } = parseArgs({
  options: {
    ui: { type: 'string', default: 'http://127.0.0.1:8233' },
    namespace: { type: 'string', default: 'laneway' },
    out: { type: 'string', default: '.' },
    chromium: { type: 'string', default: '/usr/bin/chromium' },
  },
});

const flags = [
  '--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync',
];
const columns = ['Status', 'Workflow ID', 'LanewayGroup', 'LanewaySeq', 'LanewayShard', 'LanewayState', 'Task Queue'];
const dispatches = 'WorkflowType="DispatchWorkflow"';
const workflows = `${args.ui}/namespaces/${args.namespace}/workflows`;

async function api(rest) {
  const response = await fetch(`${args.ui}/api/v1/namespaces/${args.namespace}/workflows${rest}`);
  if (!response.ok) throw new Error(`${response.status} for ${rest}`);
  return response.json();
}

// inFlight returns the dispatches that run, the last one first.
async function inFlight() {
  const list = await api(`?query=${encodeURIComponent(`${dispatches} AND ExecutionStatus="Running"`)}`);
  return (list.executions ?? []).sort((a, b) => b.startTime.localeCompare(a.startTime));
}

// progress returns how many lanes with a workflow of their own are to do.
async function progress(id) {
  const w = await api(`/${encodeURIComponent(id)}`);
  return {
    running: w.workflowExecutionInfo.status === 'WORKFLOW_EXECUTION_STATUS_RUNNING',
    pending: (w.pendingChildren ?? []).length,
  };
}

async function open(page, url, ready) {
  // The pages poll for as long as they are open: there is no idle network.
  await page.goto(url, { waitUntil: 'domcontentloaded' });
  await page.waitForSelector(ready);
}

// fold hides the lanes in the input, which are its longest part.
async function fold(page) {
  const lanes = page.locator('.cm-line', { hasText: '"lanes": [' }).first();
  await lanes.waitFor();
  // The page moves while it loads, so that a click may miss.
  for (let tries = 0; tries < 20 && !(await page.locator('.cm-foldPlaceholder').count()); tries++) {
    const line = await lanes.boundingBox();
    const gutter = await page.locator('.cm-foldGutter').first().boundingBox();
    await page.mouse.click(gutter.x + gutter.width / 2, line.y + line.height / 2);
    await sleep(250);
  }
  await page.mouse.move(700, 10);
}

async function main() {
  const browser = await chromium.launch({ executablePath: args.chromium, args: flags });
  try {
    const context = await browser.newContext({ viewport: { width: 1400, height: 960 }, colorScheme: 'light', timezoneId: 'UTC' });
    context.setDefaultTimeout(60_000);
    await context.addInitScript(([namespace, labels]) => {
      localStorage.setItem('navOpen', 'false');
      localStorage.setItem('namespace-workflow-table-columns', JSON.stringify({ [namespace]: labels.map((label) => ({ label })) }));
    }, [args.namespace, columns]);
    const timeline = await context.newPage();
    const details = await context.newPage();
    const list = await context.newPage();
    const shot = (page, name, height = 960) => page.screenshot({ path: path.join(args.out, name), clip: { x: 0, y: 0, width: 1400, height } });
    await open(timeline, workflows, 'h1'); // for the browser's cache
    console.log('waiting for dispatches: send some messages to a large group');

    let some = [];
    while (some.length < 4) {
      await sleep(500);
      some = await inFlight();
    }
    const { workflowId: id, runId: run } = some[0].execution;
    console.log(`${id} is in flight`);
    const page = `${workflows}/${encodeURIComponent(id)}/${run}`;
    await open(timeline, `${page}/timeline`, '.cm-foldGutter');
    await timeline.getByRole('button', { name: 'Descending' }).click();
    await fold(timeline);
    await open(details, `${page}/user-metadata`, 'text=Current Details');
    await open(list, `${workflows}?query=${encodeURIComponent(dispatches)}`, 'tbody tr');
    await shot(list, 'temporal-ui-list.png');

    // From a quarter of the lanes done to three quarters.
    let all = 0;
    let taken = 0;
    for (let now = await progress(id); now.running; now = await progress(id)) {
      all = Math.max(all, now.pending);
      console.log(`${now.pending} of ${all} lanes to do`);
      if (now.pending < all * 0.25) break;
      if (now.pending <= all * 0.75) {
        taken++;
        await timeline.bringToFront();
        await timeline.locator('h1').first().evaluate((h1) => {
          document.querySelector('#content-wrapper').scrollBy(0, h1.getBoundingClientRect().top - 64);
        });
        await sleep(500);
        await shot(timeline, `temporal-ui-${taken}.png`);
        await details.bringToFront();
        await details.keyboard.press('r');
        await sleep(1500);
        await shot(details, `temporal-ui-details-${taken}.png`, 720);
      }
      await sleep(1000);
    }
    if (!taken) throw new Error(`${id} ended before there was a picture: send more messages at once`);
  } finally {
    await browser.close();
  }
}

main().catch((err) => {
  console.error(err);
  process.exitCode = 1;
});
