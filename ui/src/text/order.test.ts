import { expect, it } from "vitest";

import { compareNames } from "./order";

it("orders numbers in names by their value", () => {
  expect(["gpu-10", "gpu-2", "GPU-1", "a"].sort(compareNames)).toEqual(["a", "GPU-1", "gpu-2", "gpu-10"]);
});
