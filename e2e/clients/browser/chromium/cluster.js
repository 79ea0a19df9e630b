// The control plane of KUBECONFIG, by its API and by its page.

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { createInterface } from 'node:readline';

const kubeconfig = readFileSync(process.env.KUBECONFIG, 'utf8');
const member = name => new RegExp(`${name}: "?([^"\\s]+)`).exec(kubeconfig)[1];
const decoded = name => Buffer.from(member(name), 'base64');
const server = member('server');
const agent = new Agent({
  keepAlive: true, maxSockets: 20,
  ca: decoded('certificate-authority-data'), cert: decoded('client-certificate-data'), key: decoded('client-key-data'),
});

/// Sends a request and returns the object in the response.
export function call(method, path, body) {
  const type = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
  return new Promise((resolve, reject) => {
    const sent = request(server + path, { method, agent, headers: { 'content-type': type } }, response => {
      const parts = [];
      response.on('data', part => parts.push(part));
      response.on('error', reject);
      response.on('end', () => {
        const text = Buffer.concat(parts).toString();
        if (response.statusCode < 300) resolve(JSON.parse(text));
        else reject(new Error(`${method} ${path}: ${response.statusCode} ${text}`));
      });
    });
    sent.on('error', reject);
    sent.end(body && JSON.stringify(body));
  });
}

/// Waits until nothing is left to happen.
export const settle = () => call('POST', '/coracle/v1alpha1/settle', {});

/// Starts `coracle ui`, and returns the address that it prints.
export async function startPage() {
  const page = spawn(process.env.CORACLE_BIN, ['ui', '--no-browser'], { stdio: ['ignore', 'pipe', 'inherit'] });
  for await (const line of createInterface({ input: page.stdout })) return { url: line, stop: () => page.kill() };
  throw new Error('coracle ui printed no address');
}

const labels = name => ({ app: name });
const containers = image => [{ name: 'app', image, volumeMounts: [{ name: 'data', mountPath: '/data' }] }];
const claim = { metadata: { name: 'data' }, spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '1Gi' } } } };

export const statefulSet = (name, replicas) => ({
  metadata: { name },
  spec: {
    replicas, serviceName: name, selector: { matchLabels: labels(name) }, volumeClaimTemplates: [claim],
    template: { metadata: { labels: labels(name) }, spec: { containers: containers('postgres:17') } },
  },
});

export const deployment = (name, replicas, cpu = '10m') => ({
  metadata: { name },
  spec: {
    replicas, selector: { matchLabels: labels(name) },
    template: { metadata: { labels: labels(name) }, spec: { containers: [{ name: 'app', image: `${name}:1`, resources: { requests: { cpu } } }] } },
  },
});
