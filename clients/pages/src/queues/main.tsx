import { render } from "preact";
import "../ui/ui.css";
import "./style/topic.css";
import "./style/chart.css";
import "./style/job.css";
import "./style/letters.css";
import { followTheme } from "../ui/theme";
import { start } from "./session";
import { App } from "./view/app";

followTheme();
start();
const root = document.getElementById("app");
if (root) render(<App />, root);
