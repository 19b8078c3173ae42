// Renders the OpenAPI document. Text only ever becomes text: nothing of the document is parsed as HTML.
'use strict';

const element = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

/** A schema, parameter or response, without its reference. */
const resolve = (root, part) => {
  const path = part?.$ref?.split('/').slice(1);
  // A description next to the reference is about this place.
  return path ? { name: path.at(-1), ...path.reduce((found, name) => found[name], root), ...part } : part ?? {};
};

/** Most values of an enumeration that are listed instead of its name. */
const VALUES_MAX = 14;

/** A schema in a few words. */
const typeOf = (root, schema) => {
  const found = resolve(root, schema);
  if (found.enum?.length <= VALUES_MAX) return found.enum.join(' | ');
  if (found.name) return found.name;
  if (found.oneOf) return found.oneOf.map((part) => typeOf(root, part)).join(' or ');
  if (found.type === 'array') return `list of ${typeOf(root, found.items)}`;
  return [found.type ?? 'anything'].flat().join(' or ');
};

/** The fields of an object schema, one row each; of every alternative, if there are several. */
const fields = (root, schema) => {
  const found = resolve(root, schema);
  if (found.oneOf && !found.properties) {
    const alternatives = found.oneOf.flatMap((part) => [element('h4', {}, typeOf(root, part)), fields(root, part)]);
    return element('div', {}, ...alternatives);
  }
  const rows = Object.entries(found.properties ?? {}).map(([name, field]) => {
    const need = found.required?.includes(name) ? '' : ', optional';
    const described = resolve(root, field);
    const description = described.description ?? described.oneOf?.find((part) => part.description)?.description ?? '';
    return [`${name}`, `${typeOf(root, field)}${need}. ${description}`];
  });
  return rows.length ? list(rows) : element('p', { class: 'note' }, typeOf(root, schema));
};

const list = (rows) =>
  element('dl', {}, ...rows.flatMap(([term, text]) => [element('dt', {}, element('code', {}, term)), element('dd', {}, text)]));

const bodies = (root, title, content) =>
  Object.entries(content ?? {}).flatMap(([type, { schema }]) => [
    element('h3', {}, `${title} `, element('span', { class: 'note' }, `${typeOf(root, schema)} (${type})`)),
    fields(root, schema),
  ]);

const operation = (root, path, method, described) => {
  const facts = ['x-permission', 'x-cli', 'x-audit', 'x-event']
    .filter((key) => described[key])
    .map((key) => [key.slice(2), key === 'x-cli' && !described[key].startsWith('none') ? `gpuaas ${described[key]}` : described[key]]);
  facts.push(['errors', (described['x-errors'] ?? []).join(', ')]);
  const parameters = (described.parameters ?? []).map((parameter) => resolve(root, parameter)).map((parameter) => [
    parameter.name,
    `${typeOf(root, parameter.schema)}, in ${parameter.in}${parameter.required ? '' : ', optional'}. ${parameter.description ?? ''}`,
  ]);
  const answers = Object.entries(described.responses)
    .filter(([status]) => status.startsWith('2'))
    .flatMap(([status, answer]) => bodies(root, `Response ${status}`, answer.content));
  const made = element('details', { id: described.operationId },
    element('summary', {}, element('code', { class: 'method' }, method), element('code', {}, path),
      element('span', { class: 'note' }, described.summary ?? '')),
    list(facts),
    ...(parameters.length ? [element('h3', {}, 'Parameters'), list(parameters)] : []),
    ...bodies(root, 'Body', described.requestBody?.content),
    ...answers);
  made.dataset.text = `${method} ${path} ${described.operationId} ${made.textContent}`.toLowerCase();
  return made;
};

const render = (root) => {
  const groups = new Map();
  for (const [path, item] of Object.entries(root.paths)) {
    for (const [method, described] of Object.entries(item)) {
      const tag = described.tags?.[0] ?? 'other';
      groups.set(tag, [...(groups.get(tag) ?? []), operation(root, path, method, described)]);
    }
  }
  const sections = [...groups].map(([tag, operations]) => element('section', {}, element('h2', {}, tag), ...operations));
  document.getElementById('operations').replaceChildren(...sections);
};

document.getElementById('find').addEventListener('input', ({ target }) => {
  const wanted = target.value.trim().toLowerCase();
  for (const section of document.querySelectorAll('section')) {
    const all = [...section.querySelectorAll('details')];
    for (const details of all) details.hidden = !details.dataset.text.includes(wanted);
    section.hidden = all.every((details) => details.hidden);
  }
});

fetch('/api/v1/openapi.json')
  .then((answer) => answer.json())
  .then(render)
  .catch((error) => document.getElementById('operations').replaceChildren(element('p', {}, `The document cannot be read: ${error}`)));
