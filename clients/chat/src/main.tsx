import { render } from "preact";
import { begin } from "./session";
import "./style/base.css";
import "./style/layout.css";
import "./style/sidebar.css";
import "./style/message.css";
import "./style/composer.css";
import { App } from "./view/app";
import { followTheme } from "./view/theme";

followTheme();
begin();
const root = document.getElementById("app");
if (root) render(<App />, root);
