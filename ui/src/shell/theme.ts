//! The theme: the system's, unless a person chose one here. The choice is the only thing that the shell stores in the browser.

export type Theme = "system" | "light" | "dark";

const KEY = "gpuaas-theme";

export function storedTheme(): Theme {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === "light" || stored === "dark" ? stored : "system";
  } catch {
    // Browsers may forbid storage.
    return "system";
  }
}

export function applyTheme(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = theme;
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // The theme then lasts as long as the page.
  }
}
