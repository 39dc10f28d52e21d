import createPurifier from "dompurify";

const purifier = createPurifier(window);

purifier.addHook("afterSanitizeAttributes", (node) => {
  if (node.tagName !== "A") return;
  node.setAttribute("target", "_blank");
  node.setAttribute("rel", "noopener noreferrer");
});

const tags = "a p br hr h3 h4 h5 h6 strong em del code pre blockquote ul ol li table thead tbody tr th td";

/**
 * sanitize returns HTML as nodes, without everything that Markdown has no need of: only a few
 * elements and attributes, and links to http, https and mailto addresses.
 */
export function sanitize(html: string): DocumentFragment {
  return purifier.sanitize(html, {
    ALLOWED_TAGS: tags.split(" "),
    ALLOWED_ATTR: ["href", "title", "start", "align", "data-language"],
    ADD_URI_SAFE_ATTR: ["start", "align", "data-language"],
    ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  });
}
