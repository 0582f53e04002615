// graphile-worker: an effect is a job with a key, run by its own worker in this process.  (A
// job that has run is deleted, and its key with it: what was done is not remembered, so a
// duplicate can only be told while the job still waits.)
import { EventEmitter } from 'node:events';
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import pg from 'pg';

const KNOWN = 1000;
const TOMORROW = new Date(Date.now() + 86400e3);

const silent = new Logger(() => () => {});

// The promise of a job's end, which the worker tells once the database has it.
function ended(peer, name) {
  return new Promise((resolve) => peer.waiting.set(name, resolve));
}

function tell(peer, { job, error }) {
  if (error) throw error;
  const name = job.payload.name;
  peer.waiting.get(name)?.();
  peer.waiting.delete(name);
}

async function effect(peer, client, n) {
  const end = ended(peer, `peer-${n}`);
  await peer.utils.addJob('act', { name: `peer-${n}`, amount: 1050 }, { jobKey: `peer-${n}` });
  await end;
}

async function duplicate(peer, client, n) {
  await peer.utils.addJob('act', { name: `known-${n % KNOWN}`, amount: 1050 },
    { jobKey: `known-${n % KNOWN}`, jobKeyMode: 'unsafe_dedupe', runAt: TOMORROW });
}

// Jobs of one named queue run one at a time.
async function lock(peer, client, n) {
  const end = ended(peer, `lock-${n}`);
  await peer.utils.addJob('act', { name: `lock-${n}` }, { queueName: `lock-${client}` });
  await end;
}

async function makeKnown(peer) {
  await peer.utils.migrate();
  for (let i = 0; i < KNOWN; i++) await duplicate(peer, 0, i);
}

export async function open(work, clients, prepare) {
  const pgPool = new pg.Pool({ max: 2 * clients + 2 });
  pgPool.on('error', () => {});
  const peer = { waiting: new Map(), utils: await makeWorkerUtils({ pgPool, logger: silent }) };
  if (prepare) await makeKnown(peer);
  const events = new EventEmitter();
  events.on('job:complete', (event) => tell(peer, event));
  const runner = await run({
    pgPool, events, concurrency: clients, noHandleSignals: true, logger: silent, taskList: { act: async () => {} },
  });
  const act = { effect, duplicate, lock }[work];
  return {
    once: (client, n) => act(peer, client, n),
    close: async () => { await runner.stop(); await peer.utils.release(); await pgPool.end(); },
  };
}
