// Requests with a kubeconfig, without a Kubernetes client.
import { request } from 'node:https';
import { json } from 'node:stream/consumers';

const PODS = '/api/v1/namespaces/default/pods';

// Creates a pod in the namespace `default`.
export async function createPod(kubeconfig, name) {
  const pod = { metadata: { name }, spec: { containers: [{ name: 'app', image: 'app' }] } };
  const { status } = await send(kubeconfig, 'POST', PODS, pod);
  if (status !== 201) {
    throw new Error(`status ${status}`);
  }
}

// The names of the pods in the namespace `default`.
export async function podNames(kubeconfig) {
  const { body } = await send(kubeconfig, 'GET', PODS);
  return body.items.map((pod) => pod.metadata.name);
}

// The names of the forks that a control plane knows.
export async function forkNames(kubeconfig) {
  const { body } = await send(kubeconfig, 'GET', '/coracle/v1alpha1/forks');
  return body.forks.map((fork) => fork.name);
}

function send(kubeconfig, method, path, body) {
  const member = (key) => new RegExp(`${key}: "?([^"\\s]+)`).exec(kubeconfig)[1];
  const data = (key) => Buffer.from(member(key), 'base64');
  const options = {
    method,
    headers: { 'Content-Type': 'application/json' },
    ca: data('certificate-authority-data'),
    cert: data('client-certificate-data'),
    key: data('client-key-data'),
  };
  return new Promise((resolve, reject) => {
    const sent = request(member('server') + path, options, (response) => {
      json(response).then((body) => resolve({ status: response.statusCode, body }), reject);
    });
    sent.on('error', reject);
    sent.end(body && JSON.stringify(body));
  });
}
