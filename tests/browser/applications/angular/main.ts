// Templates are compiled in the browser: without Angular's own build, one build tool makes all four applications.
import "@angular/compiler";
import { Component, inject, provideExperimentalZonelessChangeDetection, signal } from "@angular/core";
import { bootstrapApplication, Title } from "@angular/platform-browser";
import { ActivatedRoute, provideRouter, RouterLink, RouterOutlet } from "@angular/router";

@Component({ selector: "app-home", template: "<p>All the things there are.</p>" })
class Home {}

@Component({ selector: "app-about", template: "<p>Made with a framework.</p>" })
class About {}

class WithData {
  data = signal<any>(null);
  title = inject(Title);
  parameters = inject(ActivatedRoute).snapshot.params;

  async load(name: string) {
    const response = await fetch(`/data/${name}.json`);
    const data = await response.json();
    this.title.setTitle(data.title);
    this.data.set(data);
  }
}

@Component({
  selector: "app-list",
  imports: [RouterLink],
  template: `<ul>@for (id of data()?.things; track id) {<li><a [routerLink]="['/thing', id]">Thing {{ id }}</a></li>}</ul>`,
})
class List extends WithData {
  loading = this.load(`list-${this.parameters["number"]}`);
}

@Component({
  selector: "app-thing",
  template: `@if (data(); as thing) {<article><h1>{{ thing.title }}</h1><p>{{ thing.text }}</p></article>}`,
})
class Thing extends WithData {
  loading = this.load(`thing-${this.parameters["id"]}`);
}

@Component({
  selector: "app-root",
  imports: [RouterLink, RouterOutlet],
  template: `<nav><a routerLink="/">Home</a> <a routerLink="/about">About</a>
    <a routerLink="/list/1">First</a> <a routerLink="/list/2">Second</a></nav><router-outlet />`,
})
class App {}

const routes = [
  { path: "", component: Home, title: "Home" },
  { path: "about", component: About, title: "About" },
  { path: "list/:number", component: List },
  { path: "thing/:id", component: Thing },
];
bootstrapApplication(App, { providers: [provideRouter(routes), provideExperimentalZonelessChangeDetection()] });
