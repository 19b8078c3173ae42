import "./tokens.css";
import "./base.css";

import { mount } from "svelte";

import { session } from "./api/session.svelte";
import { pageUse } from "./api/use";
import App from "./App.svelte";
import { router } from "./router/router.svelte";
import { applyTheme, storedTheme } from "./shell/theme";
import { signInLink } from "./shell/sign-in-link.svelte";

applyTheme(storedTheme());
// Before anything else reads the address: a code in it is a credential.
signInLink.take();
router.listen();
pageUse.watch(window);
// Addresses contain names and filters of the person before.
session.onReplaced = () => location.replace("/");
// A browser can keep a page that was left, and show it as it was to a person who goes back.
window.addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});
// A code waits until it is known whether this browser is signed in already.
void session.load();

const target = document.getElementById("app");
if (target !== null) mount(App, { target });
