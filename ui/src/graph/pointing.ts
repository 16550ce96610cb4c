// Keys and the tooltip of a graph, for lines and heat maps.

export interface GraphActions {
  onpan: (share: number) => void;
  onzoom: (factor: number) => void;
  onwhole: () => void;
  onback: () => void;
}

const KEYS: Record<string, (actions: GraphActions) => void> = {
  ArrowLeft: ({ onpan }) => { onpan(-0.25); },
  ArrowRight: ({ onpan }) => { onpan(0.25); },
  "+": ({ onzoom }) => { onzoom(0.5); },
  "=": ({ onzoom }) => { onzoom(0.5); },
  "-": ({ onzoom }) => { onzoom(2); },
  "0": ({ onwhole }) => { onwhole(); },
  Escape: ({ onback }) => { onback(); },
};

// Runs the action of a key.
export function pressKey(event: KeyboardEvent, actions: GraphActions): void {
  const action = KEYS[event.key];
  if (action === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  event.stopPropagation();
  action(actions);
}

// Puts the tooltip beside the pointer, on the side that has room.
export function placeTip(tip: HTMLElement, host: HTMLElement, pointed: { left: number; top: number }, height: number): void {
  const room = host.clientWidth - pointed.left;
  const width = tip.offsetWidth;
  tip.style.left = `${room > width + 24 ? pointed.left + 14 : Math.max(0, pointed.left - width - 14)}px`;
  tip.style.top = `${Math.max(0, Math.min(pointed.top - 20, height - tip.offsetHeight))}px`;
}
