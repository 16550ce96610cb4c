// Values kept in the browser: one key each, with a version. A broken or foreign value is dropped, and
// without storage (private mode) everything works until the page is closed.

export class Stored<T> {
  constructor(
    readonly key: string,
    readonly version: number,
    // Returns `raw` as a value, or undefined if its type is wrong.
    readonly check: (raw: unknown) => T | undefined,
    readonly fallback: T,
    readonly place: () => Storage = () => localStorage,
  ) {}

  read(): T {
    try {
      const { version, value } = JSON.parse(this.place().getItem(this.key) ?? "") as Record<string, unknown>;
      return (version === this.version ? this.check(value) : undefined) ?? this.fallback;
    } catch {
      return this.fallback;
    }
  }

  write(value: T): void {
    try {
      this.place().setItem(this.key, JSON.stringify({ version: this.version, value }));
    } catch {
      // No storage, or it is full: the value lives as long as the page.
    }
  }
}

// Checks for common shapes.
export const isText = (raw: unknown): string | undefined => (typeof raw === "string" ? raw : undefined);

export function oneOf<T extends string>(...names: readonly T[]): (raw: unknown) => T | undefined {
  return (raw) => names.find((name) => name === raw);
}

// A list whose broken elements are left out.
export function listOf<T>(check: (raw: unknown) => T | undefined): (raw: unknown) => T[] | undefined {
  return (raw) => (Array.isArray(raw) ? raw.map(check).filter((item) => item !== undefined) : undefined);
}
