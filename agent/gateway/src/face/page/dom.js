// Elements. What comes from the gateway is made text here, and nowhere markup.

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** A new element; children are elements or texts. */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Sets a text if it is another one: what stays equal is neither drawn nor read out again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets an attribute if it is another one; null takes it away. */
export function setAttribute(element, name, value) {
  if (value === null) element.removeAttribute(name);
  else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Makes the children of an element those of these items, in this order, and keeps those that were there. */
export function keep(parent, items, keyOf, create, update) {
  const old = new Map();
  for (const child of [...parent.children]) {
    // Two items with one key: the first of them is made anew.
    old.get(child.dataset.key)?.remove();
    old.set(child.dataset.key, child);
  }
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    let child = old.get(key);
    if (child) {
      old.delete(key);
    } else {
      child = create(item);
      child.dataset.key = key;
    }
    update(child, item);
    if (child === place) place = place.nextElementSibling;
    else parent.insertBefore(child, place);
  }
  for (const child of old.values()) child.remove();
}

/** A name, on its own where text of another direction is around it. */
export function nameOf(text) {
  return make("bdi", { title: text }, text);
}
