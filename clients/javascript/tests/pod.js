// Requests with a kubeconfig, without a Kubernetes client.
import { request } from 'node:https';

// Creates a pod in the namespace `default`.
export function createPod(kubeconfig, name) {
  const member = (key) => new RegExp(`${key}: "?([^"\\s]+)`).exec(kubeconfig)[1];
  const data = (key) => Buffer.from(member(key), 'base64');
  const options = {
    method: 'POST',
    headers: { 'Content-Type': 'application/json' },
    ca: data('certificate-authority-data'),
    cert: data('client-certificate-data'),
    key: data('client-key-data'),
  };
  const pod = { metadata: { name }, spec: { containers: [{ name: 'app', image: 'app' }] } };
  return new Promise((resolve, reject) => {
    const sent = request(`${member('server')}/api/v1/namespaces/default/pods`, options, (response) => {
      response.resume();
      const { statusCode } = response;
      response.on('end', () => (statusCode === 201 ? resolve() : reject(new Error(`status ${statusCode}`))));
    });
    sent.on('error', reject);
    sent.end(JSON.stringify(pod));
  });
}
