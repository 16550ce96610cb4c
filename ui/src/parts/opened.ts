// Which rows of a list are open. They are in the address, so that a link shows them open too.

import { address } from "../state/address.svelte";

const NAME = "open";

export const isOpen = (id: string): boolean => address.params.has(NAME, id);

export const isAnyOpen = (): boolean => address.params.has(NAME);

export function toggle(id: string): void {
  address.change(
    (params) => {
      if (params.has(NAME, id)) params.delete(NAME, id);
      else params.append(NAME, id);
    },
    { replace: true },
  );
}
