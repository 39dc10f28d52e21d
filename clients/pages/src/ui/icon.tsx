const paths = {
  sun: "M12 4V2m0 20v-2m8-8h2M2 12h2m13.7-5.700 1.400-1.400M4.900 19.100l1.400-1.400m0-11.400L4.900 4.900m14.200 14.200-1.400-1.400M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0Z",
  moon: "M20 14.500A8.500 8.500 0 0 1 9.500 4 8.500 8.500 0 1 0 20 14.500Z",
  send: "M4.500 12 3 4.500l18 7.500-18 7.500L4.500 12Zm0 0H11",
  back: "M15 5l-7 7 7 7",
  down: "M12 5v14m-6-6 6 6 6-6",
  edit: "M4 20h4L19 9l-4-4L4 16v4Zm9-13 4 4",
  delete: "M5 7h14M10 11v6m4-6v6M6 7l1 13h10l1-13M9 7V4h6v3",
  search: "M20 20l-4.500-4.500M17.500 10.750a6.750 6.750 0 1 1-13.500 0 6.750 6.750 0 0 1 13.500 0Z",
  queues: "M4 6h16M4 12h10M4 18h6M18 10.500v9m-3-3 3 3 3-3",
  spark:
    "M11 3.500c.6 4.400 2.600 6.400 7 7-4.400.6-6.400 2.600-7 7-.6-4.400-2.600-6.400-7-7 4.400-.6 6.400-2.600 7-7ZM18.500 15.500c.3 1.700 1 2.400 2.700 2.700-1.700.3-2.400 1-2.700 2.700-.3-1.700-1-2.400-2.700-2.700 1.700-.3 2.400-1 2.700-2.700Z",
  stop: "M7 7h10v10H7Z",
  copy: "M9 9h10v11H9ZM15 9V4H5v11h4",
  check: "M5 12.500l4.500 4.500L19 7.500",
  again: "M19.500 12a7.500 7.500 0 1 1-2.200-5.300L19.500 9m0-5v5h-5",
  lock: "M7 11V8a5 5 0 0 1 10 0v3M6 11h12a1 1 0 0 1 1 1v7a1 1 0 0 1-1 1H6a1 1 0 0 1-1-1v-7a1 1 0 0 1 1-1Z",
  leave:
    "M14 8V5.500A1.500 1.500 0 0 0 12.500 4h-7A1.500 1.500 0 0 0 4 5.500v13A1.500 1.500 0 0 0 5.500 20h7a1.500 1.500 0 0 0 1.500-1.500V16M10 12h11m-4-4 4 4-4 4",
  plus: "M12 5v14M5 12h14",
  bubbles:
    "M4 5.500A1.500 1.500 0 0 1 5.500 4h10A1.500 1.500 0 0 1 17 5.500v6a1.500 1.500 0 0 1-1.500 1.500H9l-3.500 3v-3A1.500 1.500 0 0 1 4 11.500v-6ZM19.500 9.500A1.500 1.500 0 0 1 21 11v5.500a1.500 1.500 0 0 1-1.500 1.500v2.500l-3-2.500H12",
} as const;

export type IconName = keyof typeof paths;

/** Icon is a line drawing in the color of the text. It is hidden from screen readers. */
export function Icon({ name }: { name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={paths[name]} />
    </svg>
  );
}

/** Mark is an icon on a colored square, above the title of an empty page. */
export function Mark({ icon }: { icon: IconName }) {
  return (
    <div class="empty-mark">
      <Icon name={icon} />
    </div>
  );
}
