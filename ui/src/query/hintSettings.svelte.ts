// Kinds of hints that the reader switched off, in this browser.

import { isText, listOf, Stored } from "../state/stored";

const stored = new Stored<string[]>("firn.hints.off", 1, listOf(isText), []);

class HintSettings {
  off = $state.raw<readonly string[]>(stored.read());

  set(kind: string, isOn: boolean): void {
    const others = this.off.filter((one) => one !== kind);
    this.off = isOn ? others : [...others, kind];
    stored.write([...this.off]);
  }
}

export const hintSettings = new HintSettings();
