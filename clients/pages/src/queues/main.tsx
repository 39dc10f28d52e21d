import { render } from "preact";
import { begin } from "./session";
import "../ui/base.css";
import "../ui/layout.css";
import "../ui/sidebar.css";
import "./style/frame.css";
import "./style/part.css";
import { followTheme } from "../ui/theme";
import { App } from "./view/app";

followTheme();
begin();
const root = document.getElementById("app");
if (root) render(<App />, root);
