// Deploys a workload with the client that openapi-typescript generates, and waits until it is running.
import createClient from 'openapi-fetch';
import type { components, paths } from './schema.js';

type Lifecycle = components['schemas']['Lifecycle'];

const setting = (name: string): string => {
  const value = process.env[name];
  if (value === undefined) throw new Error(`${name} is not set`);
  return value;
};

const client = createClient<paths>({
  baseUrl: setting('GPUAAS_URL'),
  headers: { Authorization: `Bearer ${setting('GPUAAS_TOKEN')}` },
});
const workload = setting('GPUAAS_WORKLOAD');

/** Whether the workload runs, still changes, or will not run: the compiler notices a state that is missing here. */
const progress = (lifecycle: Lifecycle): 'running' | 'changing' | 'ended' => {
  switch (lifecycle) {
    case 'running':
      return 'running';
    case 'requested':
    case 'deploying':
    case 'starting':
      return 'changing';
    case 'stopping':
    case 'stopped':
    case 'decommissioning':
    case 'decommissioned':
    case 'failed':
    case 'cancelled':
      return 'ended';
  }
};

const { data: caller, error: refused } = await client.GET('/api/v1/whoami');
if (!caller) throw new Error(JSON.stringify(refused));
if (!caller.permissions?.includes('workloads.write')) throw new Error(`${caller.role} cannot deploy`);

// The field `app` decides the types of `placement` and `config`.
const deploy: components['schemas']['Deploy'] = {
  app: 'rke2',
  name: workload,
  placement: { server_allocation_id: setting('GPUAAS_ALLOCATION') },
  config: { node_labels: { rack: 'b12' } },
};
// @ts-expect-error A placement of another shape does not compile.
const wrong: components['schemas']['Deploy'] = { ...deploy, placement: { server: 'gpu-1' } };
const refusal = await client.POST('/api/v1/workloads', { body: wrong });
if (refusal.error?.code !== 'placement_invalid') throw new Error(`not refused: ${JSON.stringify(refusal.error)}`);

const { data: started, error } = await client.POST('/api/v1/workloads', { body: deploy });
if (!started) throw new Error(JSON.stringify(error));
for (;;) {
  const { data, error } = await client.GET('/api/v1/workloads/{workload}', { params: { path: { workload } } });
  if (!data) throw new Error(JSON.stringify(error));
  const state = progress(data.workload.lifecycle);
  if (state === 'ended') throw new Error(`${workload} is ${data.workload.lifecycle}: ${data.workload.fault?.summary}`);
  if (state === 'running') {
    const since = new Date(data.workload.created_at);
    console.log(`${workload} is ${data.workload.lifecycle} (${data.workload.health}), requested ${since.toISOString()}`);
    break;
  }
  await new Promise((resolve) => setTimeout(resolve, 200));
}
