/**
 * parseAddresses takes one address or several, with commas between them or as an array, and gives their URLs. One that
 * is named twice counts once. It throws a TypeError for what is no address.
 */
export function parseAddresses(list: string | readonly string[]): string[] {
  const parts = typeof list === "string" ? list.split(",") : list;
  const urls = parts.map((part) => parseAddress(part.trim()));
  if (urls.length === 0) {
    throw new TypeError("there is no address");
  }
  if (urls.some((url) => url.protocol !== urls[0]?.protocol)) {
    // The token would go to one node in the clear: most likely a mistake.
    throw new TypeError("addresses: some have http and some https");
  }
  return [...new Set(urls.map((url) => url.origin + url.pathname.replace(/\/+$/, "")))];
}

/** parseAddress takes `host:port` or an http or https URL. */
function parseAddress(address: string): URL {
  if (address === "") {
    throw new TypeError("an address is empty");
  }
  let url: URL;
  try {
    url = new URL(address.includes("://") ? address : `http://${address}`);
  } catch (err) {
    throw new TypeError(`address ${JSON.stringify(address)}: no URL`, { cause: err });
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new TypeError(`address ${JSON.stringify(address)}: want host:port or an http or https URL`);
  }
  if (url.search !== "" || url.hash !== "" || url.username !== "" || url.password !== "") {
    // The address itself is not shown: what has no meaning here may be a secret.
    throw new TypeError(`address of ${url.host}: a query, a fragment and a user have no meaning here`);
  }
  return url;
}
