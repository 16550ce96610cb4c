// The pages that this server has and this credential may read.

import { access } from "../state/access.svelte";
import { ROUTES, type Route } from "./routes";
import { isAgent, isCluster } from "./server.svelte";

export const visibleRoutes = (): Route[] => ROUTES.filter(isVisible);

function isVisible(route: Route): boolean {
  if (route.needsStore && isAgent) return false;
  if (route.needsCluster && !isCluster) return false;
  if (route.isOfAll && !access.isForAll) return false;
  return !(route.needsWhole && (access.isRestricted || !access.may("read")));
}
