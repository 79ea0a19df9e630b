// Elements of the page. All text of objects goes through here, and is set as text, never as HTML.

export const byId = id => document.getElementById(id);

/// Creates an element. Attributes that are functions are listeners; children are elements or texts.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined) continue;
    if (typeof value === 'function') made.addEventListener(name, value);
    else made.setAttribute(name, value);
  }
  for (const child of children.flat()) {
    if (child) made.append(child);
  }
  return made;
}

export const stateName = { failing: 'Failing', terminating: 'Terminating', progressing: 'Progressing', ready: 'Ready' };

/// The icon of a state: each has a shape of its own, so that its colour is not needed.
export function stateIcon(state) {
  const icon = byId('states').querySelector(`.${state in stateName ? state : 'ready'} svg`);
  return icon.cloneNode(true);
}

const ABBREVIATIONS = {
  Deployment: 'deploy', ReplicaSet: 'rs', StatefulSet: 'sts', DaemonSet: 'ds', CronJob: 'cron', Job: 'job', Pod: 'pod',
  Service: 'svc', Ingress: 'ing', ConfigMap: 'cm', Secret: 'secret', ServiceAccount: 'sa', PersistentVolumeClaim: 'pvc',
  PersistentVolume: 'pv', Namespace: 'ns', Node: 'node', HorizontalPodAutoscaler: 'hpa', PodDisruptionBudget: 'pdb',
  NetworkPolicy: 'netpol', CustomResourceDefinition: 'crd', StorageClass: 'sc', VolumeAttachment: 'va',
};
export const abbreviation = kind => (Object.hasOwn(ABBREVIATIONS, kind) ? ABBREVIATIONS[kind] : kind.toLowerCase());

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

/// Returns a function that calls another one in the next frame, once.
export function onFrame(paint) {
  let isDue = false;
  return () => {
    if (isDue) return;
    isDue = true;
    requestAnimationFrame(() => {
      isDue = false;
      paint();
    });
  };
}

/// Fits a canvas to its size on the screen, and returns the number of pixels in a unit.
export function fitted(canvas, width, height) {
  const ratio = Math.min(3, window.devicePixelRatio || 1);
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  return ratio;
}

/// The colours of the style sheet, by their names. `changed` is called when they change.
export function colours(changed) {
  let known = {};
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
    known = {};
    changed();
  });
  const style = getComputedStyle(document.documentElement);
  return name => (known[name] ??= style.getPropertyValue(`--${name}`).trim());
}
