// DBOS: an effect is a workflow of one step under a workflow ID; whoever starts the ID again is
// given the recorded result.
import { DBOS } from '@dbos-inc/dbos-sdk';
import pg from 'pg';

const KNOWN = 1000;

async function act() { return { id: 'ch_1' }; }
async function charge(inputs) { return DBOS.runStep(() => act(inputs), { name: 'act' }); }
const workflow = DBOS.registerWorkflow(charge, { name: 'charge' });

async function start(workflowID) {
  const handle = await DBOS.startWorkflow(workflow, { workflowID })({ amount: 1050 });
  if ((await handle.getResult()).id !== 'ch_1') throw new Error('another result');
}

async function prepare(work, clients) {
  for (let i = 0; work === 'duplicate' && i < KNOWN; i += clients) {
    await Promise.all(Array.from({ length: clients }, (_, k) => start(`known-${i + k}`)));
  }
}

export async function open(work, clients) {
  const pool = new pg.Pool({ max: clients + 2 });
  pool.on('error', () => {});
  DBOS.setConfig({ name: 'bench', systemDatabasePool: pool, logLevel: 'error', runAdminServer: false });
  await DBOS.launch();
  await prepare(work, clients);
  return {
    once: (client, n) => start(work === 'duplicate' ? `known-${n % KNOWN}` : `peer-${n}`),
    close: async () => { await DBOS.shutdown(); await pool.end().catch(() => {}); },
  };
}
