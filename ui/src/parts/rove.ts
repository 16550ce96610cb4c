// Lists whose rows the arrow keys walk through.

// Moves the focus from the element of the event to the next or previous match within `list`. Returns whether the
// key was an arrow.
export function roveBy(event: KeyboardEvent, list: Element | null, selector: string): boolean {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step === undefined) return false;
  const all = [...(list?.querySelectorAll<HTMLElement>(selector) ?? [])];
  all[all.indexOf(event.currentTarget as HTMLElement) + step]?.focus();
  event.preventDefault();
  return true;
}
