import { Platform as Platforms } from "@parleyhq/api/parley/v1/platform_pb.js";
import { named } from "./convert.js";
import { invalid } from "./error.js";

/**
 * Platform is the kind of system that a device runs: the name in platform.proto without its prefix,
 * or `PLATFORM_12` for a number that this SDK does not know. It is empty if the server sent none.
 */
export type Platform = "" | Exclude<keyof typeof Platforms, "UNSPECIFIED"> | `PLATFORM_${number}`;

export function platformName(platform: Platforms): Platform {
  return named(Platforms, platform, "PLATFORM") as Platform;
}

/** platformNumber throws INVALID_FIELD for a name that platform.proto does not have. */
export function platformNumber(name: Platform): Platforms {
  const number = name === "" ? Platforms.UNSPECIFIED : Platforms[name as keyof typeof Platforms];
  if (typeof number !== "number") {
    throw invalid("platform", `${JSON.stringify(name)} is not a platform`);
  }
  return number;
}
