// Fingers on a graph: one moves the cursor, two choose a range.

import type uPlot from "uplot";

interface TouchHandlers {
  onselect: (start: number, end: number) => void;
}

// Returns a function that stops listening.
export function listenForTouch(plot: uPlot, { onselect }: TouchHandlers): () => void {
  const { over } = plot;
  const places = new Map<number, number>();
  let from: [number, number] | undefined;
  const span = (): [number, number] => {
    const [a = 0, b = a] = [...places.values()];
    return [Math.min(a, b), Math.max(a, b)];
  };
  const place = (event: PointerEvent) => event.clientX - over.getBoundingClientRect().left;
  const down = (event: PointerEvent) => {
    if (event.pointerType !== "touch") return;
    places.set(event.pointerId, place(event));
    over.classList.add("touched");
    if (places.size === 2) from = span();
  };
  const move = (event: PointerEvent) => {
    if (!places.has(event.pointerId)) return;
    places.set(event.pointerId, place(event));
    if (places.size !== 1) return;
    const top = event.clientY - over.getBoundingClientRect().top;
    plot.setCursor({ left: place(event), top: Math.max(0, Math.min(over.clientHeight, top)) });
  };
  const up = (event: PointerEvent) => {
    if (!places.has(event.pointerId)) return;
    const to = span();
    places.delete(event.pointerId);
    if (places.size === 0) over.classList.remove("touched");
    if (from === undefined) return;
    // The range between the fingers at the start is now between their new places.
    const scale = (from[1] - from[0]) / Math.max(1, to[1] - to[0]);
    const left = from[0] - to[0] * scale;
    const right = left + over.clientWidth * scale;
    from = undefined;
    onselect(plot.posToVal(left, "x"), plot.posToVal(right, "x"));
  };
  over.addEventListener("pointerdown", down);
  over.addEventListener("pointermove", move);
  over.addEventListener("pointerup", up);
  over.addEventListener("pointercancel", up);
  return () => {
    over.removeEventListener("pointerdown", down);
    over.removeEventListener("pointermove", move);
    over.removeEventListener("pointerup", up);
    over.removeEventListener("pointercancel", up);
  };
}
