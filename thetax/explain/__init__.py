"""What $\\theta$ does: lenses on a trained model.

Each is a pure function of a model and data that returns a small frozen dataclass of arrays, the
answer first; `thetax.plot.draw` draws it. None of them changes the model or imports a plotting
library.
"""

from .associative_memory import crosstalk as crosstalk
from .associative_memory import flip_probability as flip_probability
from .associative_memory import flip_signs as flip_signs
from .associative_memory import memory_capacity as memory_capacity
from .associative_memory import memory_recall as memory_recall
from .attribution import attention_alignment as attention_alignment
from .attribution import attention_maps as attention_maps
from .attribution import embedding_map as embedding_map
from .attribution import equivariance as equivariance
from .attribution import feature_maps as feature_maps
from .attribution import filters as filters
from .attribution import has_convolution as has_convolution
from .attribution import has_embedding as has_embedding
from .attribution import has_self_attention as has_self_attention
from .attribution import receptive_fields as receptive_fields
from .attribution import saliency as saliency
from .attribution import token_saliency as token_saliency
from .class_probabilities import log_probabilities as log_probabilities
from .generation import text_samples as text_samples
from .generation import translations as translations
from .graphs import edge_attention as edge_attention
from .graphs import feature_smoothness as feature_smoothness
from .graphs import graph_attribution as graph_attribution
from .graphs import graph_separation as graph_separation
from .graphs import node_influence as node_influence
from .graphs import node_predictions as node_predictions
from .infinite_width import DualActivation as DualActivation
from .infinite_width import InfiniteWidthKernel as InfiniteWidthKernel
from .infinite_width import InfiniteWidthLimit as InfiniteWidthLimit
from .infinite_width import NoInfiniteWidthLimit as NoInfiniteWidthLimit
from .infinite_width import dual_activation as dual_activation
from .infinite_width import infinite_width_limit as infinite_width_limit
from .infinite_width import propagate_moments as propagate_moments
from .infinite_width import register_dual_activation as register_dual_activation
from .linear_regions import Breakpoints1D as Breakpoints1D
from .linear_regions import InputPlane as InputPlane
from .linear_regions import LinearRegions as LinearRegions
from .linear_regions import NotPiecewiseLinear as NotPiecewiseLinear
from .linear_regions import TooManyRegions as TooManyRegions
from .linear_regions import activation_patterns as activation_patterns
from .linear_regions import arrangement_cells as arrangement_cells
from .linear_regions import arrangement_patterns as arrangement_patterns
from .linear_regions import breakpoints_1d as breakpoints_1d
from .linear_regions import count_regions as count_regions
from .linear_regions import enumerate_regions as enumerate_regions
from .linear_regions import input_plane as input_plane
from .linear_regions import input_plane_around as input_plane_around
from .linear_regions import input_plane_through as input_plane_through
from .linear_regions import is_piecewise_linear as is_piecewise_linear
from .loss_surface import convergence_bounds as convergence_bounds
from .loss_surface import convergence_rates as convergence_rates
from .loss_surface import convexity as convexity
from .loss_surface import critical_points as critical_points
from .loss_surface import curvature as curvature
from .loss_surface import filter_normalised_direction as filter_normalised_direction
from .loss_surface import fit_convergence_rate as fit_convergence_rate
from .loss_surface import gradient_dominance as gradient_dominance
from .loss_surface import gradient_lipschitz as gradient_lipschitz
from .loss_surface import hessian_spectrum as hessian_spectrum
from .loss_surface import hessian_trace as hessian_trace
from .loss_surface import hvp as hvp
from .loss_surface import lanczos as lanczos
from .loss_surface import leading_eigenvectors as leading_eigenvectors
from .loss_surface import loss_landscape as loss_landscape
from .loss_surface import minimax_approximation as minimax_approximation
from .loss_surface import perturb_parameters as perturb_parameters
from .loss_surface import ritz_values as ritz_values
from .loss_surface import sharpness as sharpness
from .loss_surface import smoothness as smoothness
from .loss_surface import training_convergence as training_convergence
from .loss_surface import trajectory_plane as trajectory_plane
from .loss_surface import uniform_distance as uniform_distance
from .modules import hook_outputs as hook_outputs
from .modules import module_names as module_names
from .modules import named_modules as named_modules
from .predictions import calibration as calibration
from .predictions import confident_mistakes as confident_mistakes
from .predictions import confusion_matrix as confusion_matrix
from .predictions import decision_boundary as decision_boundary
from .predictions import dropout_average as dropout_average
from .predictions import dropout_penalty as dropout_penalty
from .predictions import dropout_uncertainty as dropout_uncertainty
from .predictions import hyperplane as hyperplane
from .predictions import in_version_space as in_version_space
from .predictions import interval_coverage as interval_coverage
from .predictions import margins as margins
from .predictions import mc_dropout as mc_dropout
from .predictions import permutation_importance as permutation_importance
from .predictions import version_cone as version_cone
from .predictions import version_volume as version_volume
from .signal import activation_statistics as activation_statistics
from .signal import capture_recurrence as capture_recurrence
from .signal import count_flops as count_flops
from .signal import derivative_cost as derivative_cost
from .signal import early_stopping_factor as early_stopping_factor
from .signal import effective_parameters as effective_parameters
from .signal import elman_lipschitz_bound as elman_lipschitz_bound
from .signal import gradient_norms as gradient_norms
from .signal import gradients_through_time as gradients_through_time
from .signal import network_graph as network_graph
from .signal import recurrence_eigenvalues as recurrence_eigenvalues
from .signal import recurrent_cells as recurrent_cells
from .signal import training_curves as training_curves
from .signal import weight_decay_equivalent_steps as weight_decay_equivalent_steps
from .signal import weight_decay_factor as weight_decay_factor
from .signal import weight_statistics as weight_statistics
from .tangent_kernel import Eigenpairs as Eigenpairs
from .tangent_kernel import EnsemblePrediction as EnsemblePrediction
from .tangent_kernel import InfiniteWidthComparison as InfiniteWidthComparison
from .tangent_kernel import KernelDrift as KernelDrift
from .tangent_kernel import KernelEnsemble as KernelEnsemble
from .tangent_kernel import KernelGradientDescent as KernelGradientDescent
from .tangent_kernel import KernelGradientFlow as KernelGradientFlow
from .tangent_kernel import KernelMap as KernelMap
from .tangent_kernel import KernelPlan as KernelPlan
from .tangent_kernel import Linearised as Linearised
from .tangent_kernel import LinearisedComparison as LinearisedComparison
from .tangent_kernel import LinearSolution as LinearSolution
from .tangent_kernel import TangentKernel as TangentKernel
from .tangent_kernel import TangentOperator as TangentOperator
from .tangent_kernel import TangentSpectrum as TangentSpectrum
from .tangent_kernel import WidthScaling as WidthScaling
from .tangent_kernel import compare_linearised as compare_linearised
from .tangent_kernel import conjugate_gradients as conjugate_gradients
from .tangent_kernel import effective_dimension as effective_dimension
from .tangent_kernel import eigenpairs as eigenpairs
from .tangent_kernel import kernel_alignment as kernel_alignment
from .tangent_kernel import kernel_distance as kernel_distance
from .tangent_kernel import kernel_drift as kernel_drift
from .tangent_kernel import kernel_ensemble as kernel_ensemble
from .tangent_kernel import kernel_gradient_descent as kernel_gradient_descent
from .tangent_kernel import kernel_gradient_flow as kernel_gradient_flow
from .tangent_kernel import kernel_map as kernel_map
from .tangent_kernel import linearise as linearise
from .tangent_kernel import ntk as ntk
from .tangent_kernel import ntk_operator as ntk_operator
from .tangent_kernel import power_law_exponent as power_law_exponent
from .tangent_kernel import tangent_spectrum as tangent_spectrum

__all__ = [
    "Breakpoints1D",
    "DualActivation",
    "Eigenpairs",
    "EnsemblePrediction",
    "InfiniteWidthComparison",
    "InfiniteWidthKernel",
    "InfiniteWidthLimit",
    "InputPlane",
    "KernelDrift",
    "KernelEnsemble",
    "KernelGradientDescent",
    "KernelGradientFlow",
    "KernelMap",
    "KernelPlan",
    "LinearRegions",
    "LinearSolution",
    "Linearised",
    "LinearisedComparison",
    "NoInfiniteWidthLimit",
    "NotPiecewiseLinear",
    "TangentKernel",
    "TangentOperator",
    "TangentSpectrum",
    "TooManyRegions",
    "WidthScaling",
    "activation_patterns",
    "activation_statistics",
    "arrangement_cells",
    "arrangement_patterns",
    "attention_alignment",
    "attention_maps",
    "breakpoints_1d",
    "calibration",
    "capture_recurrence",
    "compare_linearised",
    "confident_mistakes",
    "confusion_matrix",
    "conjugate_gradients",
    "convergence_bounds",
    "convergence_rates",
    "convexity",
    "count_flops",
    "count_regions",
    "critical_points",
    "crosstalk",
    "curvature",
    "decision_boundary",
    "derivative_cost",
    "dropout_average",
    "dropout_penalty",
    "dropout_uncertainty",
    "dual_activation",
    "early_stopping_factor",
    "edge_attention",
    "effective_dimension",
    "effective_parameters",
    "eigenpairs",
    "elman_lipschitz_bound",
    "embedding_map",
    "enumerate_regions",
    "equivariance",
    "feature_maps",
    "feature_smoothness",
    "filter_normalised_direction",
    "filters",
    "fit_convergence_rate",
    "flip_probability",
    "flip_signs",
    "gradient_dominance",
    "gradient_lipschitz",
    "gradient_norms",
    "gradients_through_time",
    "graph_attribution",
    "graph_separation",
    "has_convolution",
    "has_embedding",
    "has_self_attention",
    "hessian_spectrum",
    "hessian_trace",
    "hook_outputs",
    "hvp",
    "hyperplane",
    "in_version_space",
    "infinite_width_limit",
    "input_plane",
    "input_plane_around",
    "input_plane_through",
    "interval_coverage",
    "is_piecewise_linear",
    "kernel_alignment",
    "kernel_distance",
    "kernel_drift",
    "kernel_ensemble",
    "kernel_gradient_descent",
    "kernel_gradient_flow",
    "kernel_map",
    "lanczos",
    "leading_eigenvectors",
    "linearise",
    "log_probabilities",
    "loss_landscape",
    "margins",
    "mc_dropout",
    "memory_capacity",
    "memory_recall",
    "minimax_approximation",
    "module_names",
    "named_modules",
    "network_graph",
    "node_influence",
    "node_predictions",
    "ntk",
    "ntk_operator",
    "permutation_importance",
    "perturb_parameters",
    "power_law_exponent",
    "propagate_moments",
    "receptive_fields",
    "recurrence_eigenvalues",
    "recurrent_cells",
    "register_dual_activation",
    "ritz_values",
    "saliency",
    "sharpness",
    "smoothness",
    "tangent_spectrum",
    "text_samples",
    "token_saliency",
    "training_convergence",
    "training_curves",
    "trajectory_plane",
    "translations",
    "uniform_distance",
    "version_cone",
    "version_volume",
    "weight_decay_equivalent_steps",
    "weight_decay_factor",
    "weight_statistics",
]
