// Moves the range of a graph: Shift and drag, the wheel over the axis of time.

import type uPlot from "uplot";

interface PanEvents {
  onpan: (share: number) => void;
}

const WHEEL_PAUSE_MS = 160;
// Share of the range for one notch of a wheel.
const NOTCH = 0.1;

// Returns a function that stops listening.
export function listenForPan(plot: uPlot, { onpan }: PanEvents): () => void {
  let from: number | undefined;
  const move = ({ clientX }: MouseEvent) => {
    if (from === undefined) return;
    // The lines follow the pointer at once; the data follows when it is let go.
    plot.ctx.canvas.style.translate = `${clientX - from}px 0`;
  };
  const up = ({ clientX }: MouseEvent) => {
    if (from === undefined) return;
    const share = (from - clientX) / plot.over.clientWidth;
    from = undefined;
    plot.ctx.canvas.style.translate = "";
    window.removeEventListener("mousemove", move);
    window.removeEventListener("mouseup", up);
    if (Math.abs(share) > 0.005) onpan(share);
  };
  const down = (event: MouseEvent) => {
    if (!event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    // uPlot would begin to choose a range.
    event.stopImmediatePropagation();
    from = event.clientX;
    window.addEventListener("mousemove", move);
    window.addEventListener("mouseup", up);
  };
  let turned = 0;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const wheel = (event: WheelEvent) => {
    // Over the lines the wheel scrolls the page, as everywhere.
    if (plot.over.contains(event.target as Node)) return;
    event.preventDefault();
    turned += Math.sign(event.deltaY || event.deltaX) * NOTCH;
    clearTimeout(timer);
    timer = setTimeout(() => {
      const share = turned;
      turned = 0;
      onpan(share);
    }, WHEEL_PAUSE_MS);
  };
  plot.root.addEventListener("mousedown", down, { capture: true });
  plot.root.addEventListener("wheel", wheel, { passive: false });
  return () => {
    clearTimeout(timer);
    plot.root.removeEventListener("mousedown", down, { capture: true });
    plot.root.removeEventListener("wheel", wheel);
    window.removeEventListener("mousemove", move);
    window.removeEventListener("mouseup", up);
  };
}
