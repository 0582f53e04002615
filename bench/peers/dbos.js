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

async function makeKnown() {
  for (let i = 0; i < KNOWN; i++) await start(`known-${i}`);
}

export async function open(work, clients, prepare) {
  const pool = new pg.Pool({ max: clients + 2 });
  pool.on('error', () => {});
  DBOS.setConfig({ name: 'bench', systemDatabasePool: pool, logLevel: 'error', runAdminServer: false });
  await DBOS.launch();
  if (prepare) await makeKnown();
  return {
    once: (client, n) => start(work === 'duplicate' ? `known-${n % KNOWN}` : `peer-${n}`),
    close: async () => { await DBOS.shutdown(); await pool.end().catch(() => {}); },
  };
}
