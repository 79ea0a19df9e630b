// Elements of the page. All text of objects goes through here, and is set as text, never as HTML.

export const byId = id => document.getElementById(id);

/// Creates an element. Attributes that are functions are listeners; children are elements or texts.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') made.addEventListener(name, value);
    else if (name === 'text') made.textContent = value;
    else made.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null && child !== false) made.append(child);
  }
  return made;
}

export const STATES = ['failing', 'terminating', 'progressing', 'ready'];
export const stateName = { failing: 'Failing', terminating: 'Terminating', progressing: 'Progressing', ready: 'Ready', missing: 'Missing' };

const SHAPES = {
  ready: 'M6 1a5 5 0 1 0 0 10A5 5 0 0 0 6 1Zm2.6 3.6L5.4 8 3.5 6.1',
  progressing: 'M6 1.8a4.2 4.2 0 1 0 0 8.4 4.2 4.2 0 0 0 0-8.4ZM6 3.4v5.2a2.6 2.6 0 0 0 0-5.2Z',
  terminating: 'M2 2h8L6.8 6 10 10H2l3.2-4Z',
  failing: 'M6 .9 11.4 10.6H.6ZM6 4.4v2.8M6 8.8v.3',
};

/// The icon of a state: each has a shape of its own, so that its colour is not needed.
export function stateIcon(state) {
  const space = 'http://www.w3.org/2000/svg';
  const svg = document.createElementNS(space, 'svg');
  svg.setAttribute('viewBox', '0 0 12 12');
  svg.setAttribute('class', `icon ${state in SHAPES ? state : 'ready'}`);
  svg.setAttribute('aria-hidden', 'true');
  const path = document.createElementNS(space, 'path');
  path.setAttribute('d', SHAPES[state] ?? SHAPES.ready);
  svg.append(path);
  return svg;
}

const ABBREVIATIONS = {
  Deployment: 'deploy', ReplicaSet: 'rs', StatefulSet: 'sts', DaemonSet: 'ds', CronJob: 'cron', Job: 'job', Pod: 'pod',
  Service: 'svc', Ingress: 'ing', ConfigMap: 'cm', Secret: 'secret', ServiceAccount: 'sa', PersistentVolumeClaim: 'pvc',
  PersistentVolume: 'pv', Namespace: 'ns', Node: 'node', HorizontalPodAutoscaler: 'hpa', PodDisruptionBudget: 'pdb',
  NetworkPolicy: 'netpol', ReplicationController: 'rc', CustomResourceDefinition: 'crd', StorageClass: 'sc',
  ResourceQuota: 'quota', LimitRange: 'limits', RoleBinding: 'rolebinding', ControllerRevision: 'revision',
};
export const abbreviation = kind => ABBREVIATIONS[kind] ?? kind.toLowerCase();

/// A duration since a time, as kubectl prints ages.
export function age(from, now) {
  const seconds = Math.max(0, Math.round((Date.parse(now) - Date.parse(from)) / 1000));
  if (Number.isNaN(seconds)) return '';
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86400)}d`;
}

/// The time of day, in UTC as objects have it.
export const clockTime = time => (/T(\d\d:\d\d:\d\d)/.exec(time ?? '') ?? ['', ''])[1];
