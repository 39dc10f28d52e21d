/**
 * parseAddresses parses one or more addresses, separated by commas or as an array, and returns
 * their URLs without duplicates. It throws a TypeError if an address is invalid, if there is none,
 * or if their schemes differ.
 */
export function parseAddresses(list: string | readonly string[]): string[] {
  const parts = typeof list === "string" ? list.split(",") : list;
  const urls = parts.map((part) => parseAddress(part.trim()));
  if (urls.length === 0) {
    throw new TypeError("no address");
  }
  if (urls.some((url) => url.protocol !== urls[0]?.protocol)) {
    // With both schemes, the token would go to some nodes unencrypted.
    throw new TypeError("addresses: some have the scheme http and some https");
  }
  return [...new Set(urls.map((url) => url.origin + url.pathname.replace(/\/+$/, "")))];
}

/** parseAddress parses `host:port` or an http or https URL. */
function parseAddress(address: string): URL {
  if (address === "") {
    throw new TypeError("empty address");
  }
  let url: URL;
  try {
    url = new URL(address.includes("://") ? address : `http://${address}`);
  } catch (err) {
    throw new TypeError(`address ${JSON.stringify(address)}: not a URL`, { cause: err });
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new TypeError(`address ${JSON.stringify(address)}: must be host:port or an http or https URL`);
  }
  if (url.search !== "" || url.hash !== "" || url.username !== "" || url.password !== "") {
    // The error omits the address, because it may contain a secret.
    throw new TypeError(`address of ${url.host}: must not have a query, a fragment or a user`);
  }
  return url;
}
