import { render } from "preact";
import { begin } from "./session";
import "../style/base.css";
import "../style/layout.css";
import "../style/sidebar.css";
import "./style/frame.css";
import "./style/part.css";
import { followTheme } from "../view/theme";
import { App } from "./view/app";

followTheme();
begin();
const root = document.getElementById("app");
if (root) render(<App />, root);
