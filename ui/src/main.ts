// Starts the page.

import "./look/base.css";
import { mount } from "svelte";
import App from "./frame/App.svelte";

const target = document.getElementById("page");
if (!target) throw new Error("index.html has no element of the id page");
mount(App, { target });
